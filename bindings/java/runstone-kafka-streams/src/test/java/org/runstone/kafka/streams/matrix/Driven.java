// Runs a topology in the test driver, with the stores of one supplier.

package org.runstone.kafka.streams.matrix;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.function.BiConsumer;
import java.util.function.ObjIntConsumer;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.test.TestRecord;

final class Driven {
    private Driven() {
    }

    /**
     * One result.
     *
     * @param number the number of the event that led to it, from its header; -1 if there is none
     */
    record Result(String value, long time, int number) {
    }

    /** The output of a topology for the events, in order, by the keys of the output. */
    static Map<String, List<Result>> run(BiConsumer<StreamsBuilder, Setting> topology,
            Setting setting, Class<?> suppliers, Path directory) {
        Map<String, List<Result>> out = new TreeMap<>();
        int last = new Events(setting).batches().size();
        drive(topology, setting, suppliers, directory, (driver, fed) -> {
            if (fed == last) {
                var output = driver.createOutputTopic(
                        "out", new StringDeserializer(), new StringDeserializer());
                for (TestRecord<String, String> one : output.readRecordsToList()) {
                    out.computeIfAbsent(one.key(), key -> new ArrayList<>()).add(
                            new Result(one.value(), one.timestamp(), number(one.headers())));
                }
            }
        });
        return out;
    }

    /** Feeds all events. After each batch, {@code look} gets the driver and the count of events. */
    static void drive(BiConsumer<StreamsBuilder, Setting> topology, Setting setting,
            Class<?> suppliers, Path directory, ObjIntConsumer<TopologyTestDriver> look) {
        Properties config = setting.config();
        config.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, suppliers);
        config.put(StreamsConfig.STATE_DIR_CONFIG,
                directory.resolve(suppliers.getSimpleName()).toString());
        StreamsBuilder builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(config)));
        topology.accept(builder, setting);
        try (TopologyTestDriver driver = new TopologyTestDriver(
                builder.build(config), config, Instant.ofEpochMilli(0))) {
            Map<String, TestInputTopic<String, String>> topics = new HashMap<>();
            Events.TOPICS.forEach(topic -> topics.put(topic, driver.createInputTopic(
                    topic, new StringSerializer(), new StringSerializer())));
            int fed = 0;
            for (Events.Batch batch : new Events(setting).batches()) {
                topics.get(batch.topic()).pipeInput(
                        "batch", batch.events(), Instant.ofEpochMilli(batch.time()));
                driver.advanceWallClockTime(Duration.ofMillis(300));
                look.accept(driver, ++fed);
            }
        }
    }

    private static int number(Headers headers) {
        var number = headers.lastHeader("number");
        return number == null ? -1 : Integer.parseInt(new String(number.value(), UTF_8));
    }
}
