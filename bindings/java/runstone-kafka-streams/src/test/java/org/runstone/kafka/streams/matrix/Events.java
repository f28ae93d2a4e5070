// The events on which topologies are run.

package org.runstone.kafka.streams.matrix;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.Collectors;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.InternalFixedKeyRecordFactory;
import org.apache.kafka.streams.processor.api.Record;

/** Batches of events for two topics: some late, some without a value. */
final class Events {
    static final List<String> TOPICS = List.of("left", "right");
    private static final int COUNT = 480;
    /** Most times are multiples of this, so that windows often end at an event. */
    private static final long STEP_MS = Setting.WINDOW.toMillis() / 8;
    private static final String NULL = "-";

    private final List<Batch> batches = new ArrayList<>();
    /** For each event, the stream time: the latest time so far of an event with a value. */
    private final List<Long> streamTimes = new ArrayList<>();

    record Batch(String topic, long time, String events) {
    }

    private record Event(String key, long time, String value, int number) {
        static Event of(String text) {
            String[] parts = text.split(",");
            return new Event(parts[0], Long.parseLong(parts[1]),
                    parts[2].equals(NULL) ? null : parts[2], Integer.parseInt(parts[3]));
        }

        @Override
        public String toString() {
            return key + ',' + time + ',' + (value == null ? NULL : value) + ',' + number;
        }
    }

    Events(Setting setting) {
        Random random = new Random(11);
        long time = 25 * Setting.WINDOW.toMillis();
        int late = 8 * (2 + setting.grace());
        long streamTime = 0;
        for (int number = 0; number < COUNT; ) {
            List<Event> batch = new ArrayList<>();
            for (int left = setting.pace().batch; left > 0; left--, number++) {
                time += random.nextInt(3) == 0 ? STEP_MS : 0;
                if (setting.pace().jumps && random.nextInt(25) == 0) {
                    time += STEP_MS * random.nextInt(120);
                }
                long at = time - (random.nextInt(4) == 0 ? STEP_MS * random.nextInt(late) : 0);
                at += random.nextInt(4) == 0 ? random.nextInt(3) - 1 : 0;
                // Keys have two lengths.
                String key = "k".repeat(1 + random.nextInt(2)) + random.nextInt(3);
                String value = random.nextInt(10) == 0 ? null : "v" + number;
                streamTime = value == null ? streamTime : Math.max(streamTime, at);
                streamTimes.add(streamTime);
                batch.add(new Event(key, at, value, number));
            }
            batches.add(new Batch(TOPICS.get(random.nextInt(TOPICS.size())), time,
                    batch.stream().map(Event::toString).collect(Collectors.joining(";"))));
        }
    }

    List<Batch> batches() {
        return batches;
    }

    /** The stream time once the event with this number has arrived. */
    long streamTimeAt(int number) {
        return streamTimes.get(number);
    }

    /** The events of a topic. Their only header is the number of the event. */
    static KStream<String, String> of(StreamsBuilder builder, String topic) {
        return builder.<String, String>stream(topic).processValues(Apart::new);
    }

    /** Splits a batch. Its events are processed before the driver commits. */
    private static final class Apart extends ContextualFixedKeyProcessor<String, String, String> {
        @Override
        public void process(FixedKeyRecord<String, String> batch) {
            for (String text : batch.value().split(";")) {
                Event event = Event.of(text);
                Headers headers = new RecordHeaders().add("number",
                        Integer.toString(event.number()).getBytes(UTF_8));
                context().forward(InternalFixedKeyRecordFactory.create(new Record<>(
                        event.key(), event.value(), event.time(), headers)));
            }
        }
    }
}
