// Compares Runstone's state store with RocksDB's in one run. Both get the same store stack, records
// and heap. Each measurement runs in a process of its own, and the two stores alternate.
// `bindings/java/compare.sh` starts it.
//
// There are no brokers. Records go through Kafka's own store stack (metering, change logging, no
// cache), as in a count by key, and the changelog is made in memory. So the figures describe
// stores, not a cluster.

package org.runstone.kafka.streams.compare;

import java.io.File;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.StateRestoreCallback;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.MockRecordCollector;
import org.apache.kafka.test.StreamsTestUtils;
import org.runstone.kafka.streams.RunstoneStores;

/** Starts the measurements, and runs each of them. */
public final class Comparison {
    private static final int RESTORED_AT_ONCE = 1000;
    private static final String RESULT = "RESULT ";

    private Comparison() {
    }

    /**
     * Arguments: rounds, events, keys, bytes of the changelog; or the measurement and its input.
     */
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("measure")) {
            measure(arguments);
            return;
        }
        int rounds = Integer.parseInt(arguments[0]);
        Map<String, List<double[]>> results = new HashMap<>();
        for (int round = 0; round < rounds; round++) {
            for (String work : List.of("count", "restore")) {
                for (String store : round % 2 == 0
                        ? List.of("rocksdb", "runstone") : List.of("runstone", "rocksdb")) {
                    results.computeIfAbsent(work + store, made -> new ArrayList<>())
                            .add(fork(work, store, arguments));
                }
            }
        }
        print(results, "count", "keyed count", "events/s");
        print(results, "restore", "restore of the changelog", "records/s");
    }

    private static double median(List<double[]> results, int column) {
        double[] sorted = results.stream().mapToDouble(one -> one[column]).sorted().toArray();
        return sorted[sorted.length / 2];
    }

    private static void print(
            Map<String, List<double[]>> results, String work, String name, String unit) {
        List<double[]> theirs = results.get(work + "rocksdb");
        List<double[]> ours = results.get(work + "runstone");
        String[] columns = {unit, "processor s", "native MiB, peak"};
        for (int column = 0; column < columns.length; column++) {
            double their = median(theirs, column);
            double our = median(ours, column);
            System.out.printf(Locale.ROOT,
                    "%-26s %-18s RocksDB %,14.1f   Runstone %,14.1f   %.2fx%n",
                    name, columns[column], their, our, our / their);
        }
    }

    private static double[] fork(String work, String store, String[] arguments) throws Exception {
        Path directory = Files.createTempDirectory("runstone-compare");
        try {
            Process process = new ProcessBuilder(
                    Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                    "-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:+AlwaysPreTouch",
                    "-Drunstone.library=" + System.getProperty("runstone.library"),
                    "-cp", System.getProperty("java.class.path"), Comparison.class.getName(),
                    "measure", work, store, arguments[1], arguments[2], arguments[3],
                    directory.toString())
                    .redirectError(ProcessBuilder.Redirect.INHERIT).start();
            String said = new String(process.getInputStream().readAllBytes());
            int from = said.indexOf(RESULT);
            if (process.waitFor() != 0 || from < 0) {
                throw new IOException(work + " on " + store + " failed: " + said);
            }
            return Stream.of(said.substring(from + RESULT.length()).trim().split(" "))
                    .mapToDouble(Double::parseDouble).toArray();
        } finally {
            try (Stream<Path> files = Files.walk(directory)) {
                files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
            }
        }
    }

    private static void measure(String[] arguments) throws Exception {
        KeyValueBytesStoreSupplier supplier = arguments[2].equals("runstone")
                ? RunstoneStores.timestampedKeyValueStore("store")
                : Stores.persistentTimestampedKeyValueStore("store");
        long events = Long.parseLong(arguments[3]);
        int keys = Integer.parseInt(arguments[4]);
        var config = StreamsTestUtils.getStreamsConfig();
        config.put(StreamsConfig.METRICS_RECORDING_LEVEL_CONFIG, "INFO");
        Registering context = new Registering(new File(arguments[6]), new StreamsConfig(config));
        Peak peak = new Peak();
        double[] result = arguments[1].equals("count")
                ? count(supplier, context, events, keys)
                : restore(supplier, context, Long.parseLong(arguments[5]), keys);
        System.out.printf(Locale.ROOT, "%s%f %f %f%n", RESULT, result[0], result[1], peak.end());
        System.exit(0);
    }

    /** Events per second, and seconds of processor time. */
    private static double[] count(
            KeyValueBytesStoreSupplier supplier, Registering context, long events, int keys) {
        TimestampedKeyValueStore<Long, Long> store = Stores.timestampedKeyValueStoreBuilder(
                supplier, Serdes.Long(), Serdes.Long()).withLoggingDisabled().build();
        store.init(context, store);
        Random random = new Random(1);
        long began = System.nanoTime();
        double processor = processorSeconds();
        for (long event = 0; event < events; event++) {
            long key = random.nextInt(keys);
            ValueAndTimestamp<Long> count = store.get(key);
            store.put(key, ValueAndTimestamp.make(count == null ? 1 : count.value() + 1, event));
        }
        store.commit(Map.of());
        double seconds = (System.nanoTime() - began) / 1e9;
        return new double[] {events / seconds, processorSeconds() - processor};
    }

    /** Records per second, and seconds of processor time. */
    private static double[] restore(
            KeyValueBytesStoreSupplier supplier, Registering context, long bytes, int keys) {
        TimestampedKeyValueStore<Bytes, byte[]> store = Stores.timestampedKeyValueStoreBuilder(
                supplier, Serdes.Bytes(), Serdes.ByteArray()).withLoggingDisabled().build();
        store.init(context, store);
        var callback = (RecordBatchingStateRestoreCallback) context.restoring;
        Random random = new Random(1);
        long records = bytes / 116;
        double spent = 0;
        double processor = 0;
        for (long done = 0; done < records; done += RESTORED_AT_ONCE) {
            List<ConsumerRecord<byte[], byte[]>> batch = new ArrayList<>(RESTORED_AT_ONCE);
            for (int number = 0; number < RESTORED_AT_ONCE; number++) {
                byte[] value = new byte[100];
                random.nextBytes(value);
                byte[] key = ByteBuffer.allocate(16).putLong(random.nextInt(keys)).array();
                batch.add(new ConsumerRecord<>("changelog", 0, done + number, key, value));
            }
            long began = System.nanoTime();
            double before = processorSeconds();
            callback.restoreBatch(batch);
            spent += (System.nanoTime() - began) / 1e9;
            processor += processorSeconds() - before;
        }
        long began = System.nanoTime();
        store.commit(Map.of());
        spent += (System.nanoTime() - began) / 1e9;
        return new double[] {records / spent, processor};
    }

    private static double processorSeconds() {
        var system = ManagementFactory.getOperatingSystemMXBean();
        return ((com.sun.management.OperatingSystemMXBean) system).getProcessCpuTime() / 1e9;
    }

    /** Keeps the callback that a store registers. */
    private static final class Registering extends InternalMockProcessorContext<Object, Object> {
        private StateRestoreCallback restoring;

        Registering(File directory, StreamsConfig config) {
            super(directory, config, new MockRecordCollector());
        }

        @Override
        public void register(StateStore store, StateRestoreCallback callback,
                org.apache.kafka.streams.processor.CommitCallback commit) {
            restoring = callback;
        }
    }

    /** The peak resident memory beyond that of the process before it opened the store, in MiB. */
    private static final class Peak extends Thread {
        private final double before = resident();
        private volatile double most = before;
        private volatile boolean hasEnded;

        Peak() throws IOException {
            setDaemon(true);
            start();
        }

        private static double resident() throws IOException {
            for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
                if (line.startsWith("VmRSS:")) {
                    return Long.parseLong(line.replaceAll("[^0-9]", "")) / 1024.0;
                }
            }
            throw new IOException("no VmRSS");
        }

        @Override
        public void run() {
            try {
                while (!hasEnded) {
                    most = Math.max(most, resident());
                    sleep(50);
                }
            } catch (IOException | InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }

        double end() throws InterruptedException {
            hasEnded = true;
            join();
            return most - before;
        }
    }
}
