// An instance of an application without brokers: Kafka's own tasks, state directory and changelog
// reader, in one thread.

package org.apache.kafka.streams.processor.internals;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.MockAdminClient;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.MockTime;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.TopologyWrapper;
import org.apache.kafka.streams.processor.StandbyUpdateListener;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;
import org.apache.kafka.streams.processor.internals.metrics.ThreadMetrics;
import org.apache.kafka.streams.state.internals.ThreadCache;

/** Tasks of one subtopology. The test that makes a task closes it. */
final class Instance {
    private static final LogContext LOG = new LogContext("test ");

    final StateDirectory directory;
    /** The notifications that listeners received. */
    final List<String> told = new ArrayList<>();
    private final StreamsConfig config;
    private final Topics topics;
    private final Topics.Reading restoring;
    private final StoreChangelogReader reader;
    private final InternalTopologyBuilder topology;
    private final MockTime time = new MockTime();
    private final StreamsMetricsImpl metrics;
    /** Each Kafka thread has this sensor from the start. */
    private final Sensor commits;
    private final ThreadCache cache;
    private final StreamsProducer producer;
    private final Topics.Reading main;
    private final MockAdminClient admin = new MockAdminClient();
    private final Map<TaskId, Task> tasks = new HashMap<>();

    Instance(TopologyWrapper topology, Properties properties, Topics topics) {
        config = new StreamsConfig(properties);
        this.topics = topics;
        this.topology = topology.getInternalBuilder("app");
        metrics = new StreamsMetricsImpl(new Metrics(), "client", time);
        commits = ThreadMetrics.commitSensor(Thread.currentThread().getName(), metrics);
        cache = new ThreadCache(LOG, 0, metrics);
        directory = new StateDirectory(config, time, true, false);
        restoring = topics.consumer();
        main = topics.consumer();
        producer = new StreamsProducer(topics.producer(),
                org.apache.kafka.streams.internals.StreamsConfigUtils.processingMode(config),
                time, LOG);
        reader = new StoreChangelogReader(
                time, config, LOG, admin, restoring, new Restores(), new Updates());
    }

    static Properties config(Path stateDirectory, String guarantee) {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "app");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nobody:1");
        config.put(StreamsConfig.STATE_DIR_CONFIG, stateDirectory.toString());
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        return config;
    }

    private ProcessorStateManager manager(
            TaskId id, Task.TaskType type, ProcessorTopology built) {
        return new ProcessorStateManager(id, type, taskConfig().eosEnabled, LOG, directory,
                built.storeToChangelogTopic(), inputs(id));
    }

    private TopologyConfig.TaskConfig taskConfig() {
        return new TopologyConfig(config).getTaskConfig();
    }

    private static Set<TopicPartition> inputs(TaskId id) {
        return Set.of(new TopicPartition("in", id.partition()));
    }

    private ProcessorContextImpl context(TaskId id, ProcessorStateManager manager) {
        return new ProcessorContextImpl(id, config, manager, metrics, cache);
    }

    /** A standby that has read the changelogs so far. */
    StandbyTask standby(TaskId id) {
        ProcessorTopology built = topology.buildSubtopology(id.subtopology());
        ProcessorStateManager manager = manager(id, Task.TaskType.STANDBY, built);
        StandbyTask task = new StandbyTask(id, inputs(id), built, taskConfig(), metrics, manager,
                directory, cache, context(id, manager));
        return begin(id, task);
    }

    /** A standby that continues with the open stores of an active task. */
    StandbyTask standbyOf(StreamTask active) {
        reader.unregister(active.changelogPartitions());
        suspend(active);
        active.prepareRecycle();
        active.stateMgr.transitionTaskType(Task.TaskType.STANDBY, LOG);
        return begin(active.id, new StandbyTask(active.id, inputs(active.id), active.topology,
                taskConfig(), metrics, active.stateMgr, directory, cache,
                active.processorContext()));
    }

    private StandbyTask begin(TaskId id, StandbyTask task) {
        tasks.put(id, task);
        task.initializeIfNeeded();
        reader.register(task.changelogPartitions(), task.stateMgr);
        follow();
        return task;
    }

    /** Makes the standbys read the new records. */
    void follow() {
        if (reader.isRestoringActive()) {
            reader.restore(tasks);
            reader.transitToUpdateStandby();
        }
        while (reader.restore(tasks) > 0) {
            // There may be more records.
            continue;
        }
    }

    /** An active task whose stores are not restored yet. */
    StreamTask begun(TaskId id) {
        ProcessorTopology built = topology.buildSubtopology(id.subtopology());
        ProcessorStateManager manager = manager(id, Task.TaskType.ACTIVE, built);
        return begin(id, active(id, built, manager, context(id, manager)));
    }

    /** An active task that continues with the open stores of a standby. */
    StreamTask activeOf(StandbyTask standby) {
        reader.unregister(standby.changelogPartitions());
        standby.suspend();
        standby.prepareRecycle();
        standby.stateMgr.transitionTaskType(Task.TaskType.ACTIVE, LOG);
        StreamTask task = begin(standby.id, active(standby.id, standby.topology,
                standby.stateMgr, standby.processorContext));
        restore(task);
        return task;
    }

    private StreamTask active(TaskId id, ProcessorTopology built, ProcessorStateManager manager,
            InternalProcessorContext<?, ?> context) {
        Set<TopicPartition> inputs = new HashSet<>(main.assignment());
        inputs.addAll(inputs(id));
        main.assign(inputs);
        RecordCollectorImpl collector = new RecordCollectorImpl(LOG, id, producer,
                config.productionExceptionHandler(), metrics, built);
        return new StreamTask(id, inputs(id), built, main, taskConfig(), metrics, directory,
                cache, time, manager, collector, context, LOG, false);
    }

    private StreamTask begin(TaskId id, StreamTask task) {
        tasks.put(id, task);
        task.initializeIfNeeded();
        reader.enforceRestoreActive();
        for (TopicPartition partition : task.changelogPartitions()) {
            admin.updateEndOffsets(Map.of(partition, topics.end(partition)));
        }
        reader.register(task.changelogPartitions(), task.stateMgr);
        return task;
    }

    /** Restores with at most {@code polls} polls of at most {@code most} records. */
    void restore(int most, int polls) {
        restoring.most = most;
        for (int poll = 0; poll < polls && !reader.allChangelogsCompleted(); poll++) {
            reader.restore(tasks);
        }
        restoring.most = Integer.MAX_VALUE;
    }

    /** Restores the rest, so that the task can process events. */
    void restore(StreamTask task) {
        while (!reader.completedChangelogs().containsAll(task.changelogPartitions())) {
            reader.restore(tasks);
        }
        task.completeRestoration(partitions -> { });
        for (TopicPartition input : task.inputPartitions()) {
            task.updateNextOffsets(input, new OffsetAndMetadata(0));
        }
    }

    /** An active task with restored stores. */
    StreamTask active(TaskId id) {
        StreamTask task = begun(id);
        restore(task);
        return task;
    }

    /** Processes events, without a commit. */
    void process(StreamTask task, int from, int to) {
        int partition = task.id.partition();
        task.addRecords(new TopicPartition("in", partition), Events.of(partition, from, to));
        while (task.hasRecordsQueued()) {
            task.process(time.milliseconds());
        }
    }

    /** Commits, and makes the stores commit too, as at the end of a task. */
    void commit(Task task) {
        commit(task, true);
    }

    /** Commits as a running thread does, and counts the commit. */
    void commitRunning(Task task) {
        commit(task, false);
        commits.record();
    }

    private void commit(Task task, boolean enforcesCheckpoint) {
        Map<TopicPartition, OffsetAndMetadata> offsets = task.prepareCommit(true);
        if (taskConfig().eosEnabled && !offsets.isEmpty()) {
            producer.commitTransaction(offsets, main.groupMetadata());
        }
        task.postCommit(enforcesCheckpoint);
    }

    /** Does what Kafka does with existing stores when an instance starts. */
    Map<TaskId, Long> lookAtStores() {
        directory.initializeStartupStores(new TopologyMetadata(topology, config), LOG, metrics);
        return directory.taskOffsetSums(Set.of(new TaskId(0, 0), new TaskId(0, 1)));
    }

    /** Advances the clock by an hour, so that Kafka removes the directories of absent tasks. */
    void cleanRemovedTasks() {
        time.sleep(3_600_000);
        directory.cleanRemovedTasks(60_000);
    }

    private void suspend(Task task) {
        task.suspend();
        commit(task);
    }

    /** Closes a task as when an instance ends or hands it over. */
    void close(Task task) {
        reader.unregister(task.changelogPartitions());
        suspend(task);
        task.closeClean();
        tasks.remove(task.id());
    }

    /** Closes a task as after an error. */
    void closeDirty(Task task) {
        reader.unregister(task.changelogPartitions());
        task.suspend();
        task.prepareCommit(false);
        task.closeDirty();
        tasks.remove(task.id());
    }

    /** Leaves the state of a killed process. The brokers abort its transaction. */
    void kill(StreamTask task) {
        task.stateMgr.close();
        if (taskConfig().eosEnabled) {
            producer.abortTransaction();
        }
    }

    static Map<String, List<String>> contents(Task task) {
        return AllStores.contents(task::store);
    }

    private final class Restores implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long from, long end) {
            told.add(store + " from " + from + " to " + end);
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end,
                long count) {
            told.add(store + " batch of " + count + " up to " + end);
        }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long count) {
            told.add(store + " end after " + count);
        }

        @Override
        public void onRestoreSuspended(TopicPartition partition, String store, long count) {
            told.add(store + " suspended after " + count);
        }
    }

    private final class Updates implements StandbyUpdateListener {
        @Override
        public void onUpdateStart(TopicPartition partition, String store, long from) {
            told.add(store + " standby from " + from);
        }

        @Override
        public void onBatchLoaded(TopicPartition partition, String store, TaskId task, long end,
                long count, long last) {
            told.add(store + " standby batch of " + count + " up to " + end);
        }

        @Override
        public void onUpdateSuspended(TopicPartition partition, String store, long offset,
                long last, SuspendReason reason) {
            told.add(store + " standby suspended at " + offset);
        }
    }
}
