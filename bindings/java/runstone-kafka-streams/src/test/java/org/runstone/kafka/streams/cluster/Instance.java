// An instance of the application of the cluster run: it counts events by key.

package org.runstone.kafka.streams.cluster;

import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StandbyUpdateListener;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.runstone.kafka.streams.RunstoneDslStoreSuppliers;

/**
 * Counts the events of each key, exactly once. Its output names the changelog records that it
 * replays, in lines that {@link Replays} reads.
 */
public final class Instance {
    private Instance() {
    }

    /** Runs until it is killed; arguments are the brokers and a directory for the state. */
    public static void main(String[] arguments) {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "counting");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, arguments[1]);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        config.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG,
                RunstoneDslStoreSuppliers.class);
        config.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, 1);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 8000);
        config.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 1000);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("events").groupByKey()
                .count(Materialized.as("counts"))
                .toStream().to("counts", Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setGlobalStateRestoreListener(new Restores());
        streams.setStandbyUpdateListener(new Updates());
        streams.setUncaughtExceptionHandler(error ->
                org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler
                        .StreamThreadExceptionResponse.REPLACE_THREAD);
        streams.start();
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    }

    private static void say(String what, TopicPartition partition, long from, long count) {
        System.out.println("REPLAY " + what + " " + partition + " from " + from + " records "
                + count);
    }

    /** Reports restores of stores that become active. */
    private static final class Restores implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long from, long end) {
            say("active-begin", partition, from, end - from);
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) {
            say("active", partition, -1, count);
        }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
            say("active-end", partition, -1, total);
        }
    }

    /** Reports updates of standbys, which continue as long as they are standbys. */
    private static final class Updates implements StandbyUpdateListener {
        @Override
        public void onUpdateStart(TopicPartition partition, String store, long from) {
            say("standby-begin", partition, from, 0);
        }

        @Override
        public void onBatchLoaded(TopicPartition partition, String store,
                org.apache.kafka.streams.processor.TaskId task, long batchEnd, long batchSize,
                long currentEnd) {
            say("standby", partition, batchEnd, batchSize);
        }

        @Override
        public void onUpdateSuspended(TopicPartition partition, String store, long offset,
                long currentEnd, SuspendReason reason) {
            say("standby-end", partition, offset, currentEnd);
        }
    }
}
