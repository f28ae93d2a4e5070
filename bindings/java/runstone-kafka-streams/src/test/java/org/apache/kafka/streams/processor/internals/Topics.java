// Replaces brokers in tests without them: topics in memory, and their clients.

package org.apache.kafka.streams.processor.internals;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Topics that outlive the instances which write and read them. */
final class Topics {
    private final Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> records =
            new HashMap<>();
    private final Map<TopicPartition, Long> nextOffsets = new HashMap<>();

    /** The committed records of a partition. */
    synchronized List<ConsumerRecord<byte[], byte[]>> of(TopicPartition partition) {
        return records.computeIfAbsent(partition, made -> new ArrayList<>());
    }

    /** The offset after the last committed record. */
    long end(TopicPartition partition) {
        List<ConsumerRecord<byte[], byte[]>> all = of(partition);
        return all.isEmpty() ? 0 : all.get(all.size() - 1).offset() + 1;
    }

    private synchronized ConsumerRecord<byte[], byte[]> number(
            ProducerRecord<byte[], byte[]> record) {
        TopicPartition partition = new TopicPartition(record.topic(), record.partition());
        long offset = nextOffsets.merge(partition, 1L, Long::sum) - 1;
        return new ConsumerRecord<>(partition.topic(), partition.partition(), offset,
                record.timestamp(), TimestampType.CREATE_TIME,
                record.key() == null ? -1 : record.key().length,
                record.value() == null ? -1 : record.value().length,
                record.key(), record.value(), record.headers(), Optional.empty());
    }

    private void show(ConsumerRecord<byte[], byte[]> record) {
        of(new TopicPartition(record.topic(), record.partition())).add(record);
    }

    /** Writes to the topics: at once, or when its transaction is committed. */
    MockProducer<byte[], byte[]> producer() {
        return new Writing();
    }

    private final class Writing extends MockProducer<byte[], byte[]> {
        private final List<ConsumerRecord<byte[], byte[]>> uncommitted = new ArrayList<>();

        Writing() {
            super(Cluster.empty(), true, null, new ByteArraySerializer(),
                    new ByteArraySerializer());
        }

        @Override
        public Future<RecordMetadata> send(
                ProducerRecord<byte[], byte[]> record, Callback callback) {
            ConsumerRecord<byte[], byte[]> sent = number(record);
            if (transactionInitialized()) {
                uncommitted.add(sent);
            } else {
                show(sent);
            }
            RecordMetadata metadata = new RecordMetadata(
                    new TopicPartition(sent.topic(), sent.partition()), sent.offset(), 0,
                    sent.timestamp(), sent.serializedKeySize(), sent.serializedValueSize());
            callback.onCompletion(metadata, null);
            return CompletableFuture.completedFuture(metadata);
        }

        @Override
        public void commitTransaction() {
            super.commitTransaction();
            uncommitted.forEach(Topics.this::show);
            uncommitted.clear();
        }

        /** The records of an aborted transaction stay invisible, but their offsets are used up. */
        @Override
        public void abortTransaction() {
            super.abortTransaction();
            uncommitted.clear();
        }
    }

    /** Reads the topics from the offsets to which Kafka Streams seeks. */
    Reading consumer() {
        return new Reading();
    }

    final class Reading extends MockConsumer<byte[], byte[]> {
        /** The most records that a poll returns. */
        int most = Integer.MAX_VALUE;

        Reading() {
            super("earliest");
        }

        @Override
        public synchronized void assign(Collection<TopicPartition> partitions) {
            partitions.forEach(partition -> updateBeginningOffsets(Map.of(partition, 0L)));
            super.assign(partitions);
        }

        @Override
        public synchronized ConsumerRecords<byte[], byte[]> poll(Duration timeout) {
            Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> polled = new HashMap<>();
            int left = most;
            for (TopicPartition partition : assignment()) {
                updateEndOffsets(Map.of(partition, end(partition)));
                if (paused().contains(partition)) {
                    continue;
                }
                long next = position(partition);
                List<ConsumerRecord<byte[], byte[]>> some = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> one : of(partition)) {
                    if (one.offset() >= next && left > 0) {
                        some.add(one);
                        next = one.offset() + 1;
                        left--;
                    }
                }
                seek(partition, next);
                if (!some.isEmpty()) {
                    polled.put(partition, some);
                }
            }
            return new ConsumerRecords<>(polled, Map.of());
        }
    }
}
