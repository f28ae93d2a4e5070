// The events for the stores of a test.

package org.apache.kafka.streams.processor.internals;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;

final class Events {
    static final int COUNT = 400;
    /** At this time the first events are beyond the retention. */
    static final long LAST_MS = 2 * AllStores.RETENTION.toMillis();

    private Events() {
    }

    /**
     * The events from number {@code from} up to but not including {@code to}. Some are late, all
     * have headers.
     */
    static List<ConsumerRecord<byte[], byte[]>> of(int partition, int from, int to) {
        List<ConsumerRecord<byte[], byte[]>> events = new ArrayList<>();
        Random random = new Random(5 + partition);
        for (int number = 0; number < to; number++) {
            long time = LAST_MS * number / COUNT
                    - (random.nextInt(4) == 0 ? random.nextInt(20_000) : 0);
            byte[] key = AllStores.KEYS.get(random.nextInt(AllStores.KEYS.size()))
                    .getBytes(UTF_8);
            byte[] value = ("v" + partition + "-" + number).getBytes(UTF_8);
            if (number > 10 && random.nextInt(8) == 0) {
                // Deletes the entry of an earlier event, and its window and session too.
                ConsumerRecord<byte[], byte[]> one =
                        events.get(number - 1 - random.nextInt(10));
                time = one.timestamp();
                key = one.key();
                value = null;
            }
            RecordHeaders headers = new RecordHeaders();
            headers.add("number", Integer.toString(number).getBytes(UTF_8));
            events.add(new ConsumerRecord<>("in", partition, number, Math.max(1_000, time),
                    TimestampType.CREATE_TIME, key.length, value == null ? -1 : value.length, key,
                    value, headers, Optional.empty()));
        }
        return events.subList(from, to);
    }
}
