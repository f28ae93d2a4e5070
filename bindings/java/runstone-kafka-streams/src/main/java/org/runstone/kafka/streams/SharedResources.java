// The memory, threads and files that all stores of one Kafka Streams instance share.

package org.runstone.kafka.streams;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.runstone.Resources;

/**
 * The resources of an instance, which its first store creates and its last store releases. An
 * instance is identified by its state directory. Kafka locks this directory, so no two instances
 * have the same one.
 */
final class SharedResources implements AutoCloseable {
    /** The option for the resources that all stores of an instance share, as TOML. */
    static final String OPTIONS = "runstone.resources";
    /** A restore fills the whole budget. This budget keeps memory below that of RocksDB. */
    private static final String DEFAULT_OPTIONS = "memory_budget_bytes = \"64M\"";

    private static final Map<Path, SharedResources> INSTANCES = new HashMap<>();

    private final Path instance;
    private final Resources resources;
    private int users;

    private SharedResources(Path instance, Resources resources) {
        this.instance = instance;
        this.resources = resources;
    }

    /** The resources of the store's instance. Each store closes them once. */
    static SharedResources of(StateStoreContext context) {
        Path task = context.stateDir().toPath().toAbsolutePath();
        Path instance = Objects.requireNonNullElse(task.getParent(), task);
        String options = Objects.toString(context.appConfigs().get(OPTIONS), DEFAULT_OPTIONS);
        synchronized (INSTANCES) {
            SharedResources shared = INSTANCES.computeIfAbsent(instance,
                    made -> new SharedResources(made, Resources.of(options)));
            shared.users++;
            return shared;
        }
    }

    Resources get() {
        return resources;
    }

    @Override
    public void close() {
        synchronized (INSTANCES) {
            users--;
            if (users == 0) {
                INSTANCES.remove(instance);
                resources.close();
            }
        }
    }
}
