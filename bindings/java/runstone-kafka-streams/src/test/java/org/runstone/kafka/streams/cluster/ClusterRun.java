// The cluster run: brokers and instances are killed while events arrive, and nothing is lost or
// counted twice. `bindings/java/cluster.sh` starts it.

package org.runstone.kafka.streams.cluster;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** One run, in a directory of its own. */
public final class ClusterRun {
    private static final int PARTITIONS = 4;
    private static final int HEAP_MEGABYTES = 256;

    private final Path directory;
    private final int events;
    private final int keys;
    private final long[] expected;
    private final long began = System.nanoTime();

    private ClusterRun(Path directory, int events, int keys) {
        this.directory = directory;
        this.events = events;
        this.keys = keys;
        this.expected = new long[keys];
    }

    /** Arguments: how many runs, events and keys, and a directory. */
    public static void main(String[] arguments) throws Exception {
        int runs = Integer.parseInt(arguments[0]);
        for (int run = 1; run <= runs; run++) {
            Path directory = Path.of(arguments[3], "run-" + run);
            Files.createDirectories(directory);
            ClusterRun one = new ClusterRun(directory, Integer.parseInt(arguments[1]),
                    Integer.parseInt(arguments[2]));
            one.say("run " + run + " of " + runs);
            one.run();
            try (Stream<Path> files = Files.walk(directory)) {
                files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
            }
        }
        System.out.println(runs + " passed, 0 failed");
        System.exit(0);
    }

    private void say(String what) {
        System.out.printf("%6.1f s  %s%n", (System.nanoTime() - began) / 1e9, what);
    }

    private Jvm instance(String name, Brokers brokers) throws Exception {
        return Jvm.start(log(name), HEAP_MEGABYTES, Instance.class.getName(),
                brokers.addresses(), directory.resolve("state-" + name).toString());
    }

    private Path log(String name) {
        return directory.resolve("instance-" + name + ".log");
    }

    private void run() throws Exception {
        try (Brokers brokers = new Brokers(directory)) {
            Properties client = new Properties();
            client.put("bootstrap.servers", brokers.addresses());
            try (Admin admin = Admin.create(client)) {
                waitFor(60, () -> admin.describeCluster().nodes().get().size() == 3);
                admin.createTopics(List.of(new NewTopic("events", PARTITIONS, (short) 3),
                        new NewTopic("counts", PARTITIONS, (short) 3))).all().get();
            }
            say("three brokers are up");
            try (Jvm one = instance("one", brokers); Jvm two = instance("two", brokers)) {
                Replays replays = new Replays(log("one"));
                waitFor(90, replays::hasBegun);
                say("two instances are up");
                send(client, 0, events / 6);
                counts(client, events / 6);
                say(events / 6 + " events are counted");
                send(client, events / 6, events / 3);
                one.kill();
                say("instance one was killed, after " + events / 3
                        + " events; the changelogs end at " + changelogEnd(client) + " in all");
                send(client, events / 3, events / 2);
                brokers.kill(1);
                say("broker 1 was killed, after " + events / 2 + " events");
                send(client, events / 2, 2 * events / 3);
                replays.mark();
                try (Jvm again = instance("one", brokers)) {
                    say("instance one is started again, after " + 2 * events / 3
                            + " events; the changelogs end at " + changelogEnd(client));
                    send(client, 2 * events / 3, events);
                    brokers.start(1);
                    say("all events are sent; broker 1 is started again");
                    check(client);
                    report(replays);
                    if (!two.isAlive() || !again.isAlive()) {
                        throw new IllegalStateException("an instance has ended");
                    }
                }
            }
        }
    }

    private void report(Replays replays) throws Exception {
        waitFor(60, replays::hasBegun);
        say("instance one, when it came back: " + replays.summary());
        if (replays.resumed() == 0) {
            throw new IllegalStateException("no store of instance one was taken up");
        }
    }

    /** Sends events, about ten thousand a second, so that they last through the failures. */
    private void send(Properties client, int from, int to) throws Exception {
        Random random = new Random(from);
        AtomicReference<Exception> failure = new AtomicReference<>();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                client, new StringSerializer(), new StringSerializer())) {
            long start = System.nanoTime();
            for (int event = from; event < to; event++) {
                int key = random.nextInt(keys);
                expected[key]++;
                producer.send(new ProducerRecord<>("events", "key-" + key, "event-" + event),
                        (sent, error) -> {
                            if (error != null) {
                                failure.set(error);
                            }
                        });
                if (event % 1000 == 0) {
                    long ahead = (event - from) * 100_000L - (System.nanoTime() - start);
                    Thread.sleep(Math.max(0, ahead / 1_000_000));
                }
            }
            producer.flush();
        }
        if (failure.get() != null) {
            throw failure.get();
        }
    }

    /** Reads committed counts until they add up, and compares each. */
    private void check(Properties client) throws Exception {
        Map<String, Long> counts = counts(client, events);
        int wrong = 0;
        for (int key = 0; key < keys; key++) {
            wrong += counts.getOrDefault("key-" + key, 0L) == expected[key] ? 0 : 1;
        }
        say("counted " + sum(counts) + " of " + events + " events; " + wrong + " of " + keys
                + " keys have a wrong count");
        if (wrong > 0) {
            throw new IllegalStateException(wrong + " counts are wrong; logs are in " + directory);
        }
    }

    /** Reads committed counts until they add up to {@code target}, and for a while longer. */
    private static Map<String, Long> counts(Properties client, int target) {
        Map<String, Long> counts = new HashMap<>();
        Properties config = new Properties();
        config.putAll(client);
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", "read_committed");
        long until = System.nanoTime() + Duration.ofSeconds(180).toNanos();
        try (KafkaConsumer<String, Long> consumer = new KafkaConsumer<>(
                config, new StringDeserializer(), new LongDeserializer())) {
            consumer.assign(partitions("counts"));
            consumer.seekToBeginning(consumer.assignment());
            while (sum(counts) != target && System.nanoTime() < until) {
                for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofSeconds(1))) {
                    counts.put(record.key(), record.value());
                }
            }
            // An event that was counted twice would show now.
            for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofSeconds(3))) {
                counts.put(record.key(), record.value());
            }
        }
        return counts;
    }

    private static List<TopicPartition> partitions(String topic) {
        return IntStream.range(0, PARTITIONS).mapToObj(number -> new TopicPartition(topic, number))
                .toList();
    }

    /** The sum of the end offsets of the changelog's partitions. */
    private static long changelogEnd(Properties client) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        partitions("counting-counts-changelog")
                .forEach(partition -> asked.put(partition, OffsetSpec.latest()));
        try (Admin admin = Admin.create(client)) {
            return admin.listOffsets(asked).all().get().values().stream()
                    .mapToLong(end -> end.offset()).sum();
        }
    }

    private static long sum(Map<String, Long> counts) {
        return counts.values().stream().mapToLong(Long::longValue).sum();
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void waitFor(int seconds, Condition condition) throws Exception {
        for (int tenth = 0; tenth < 10 * seconds; tenth++) {
            if (condition.holds()) {
                return;
            }
            Thread.sleep(100);
        }
        throw new IllegalStateException("it did not come about in " + seconds + " s");
    }
}
