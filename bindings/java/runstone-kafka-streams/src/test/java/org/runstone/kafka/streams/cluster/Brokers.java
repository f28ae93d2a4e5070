// Three Kafka brokers on loopback, each in a process of its own, from Maven's jars.

package org.runstone.kafka.streams.cluster;

import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.Uuid;

/** Brokers that are also controllers, and agree through Raft. */
final class Brokers implements AutoCloseable {
    private static final int COUNT = 3;
    private static final int HEAP_MEGABYTES = 256;

    private final Path directory;
    private final int[] ports = new int[COUNT];
    private final int[] controllerPorts = new int[COUNT];
    private final Jvm[] processes = new Jvm[COUNT];

    Brokers(Path directory) throws IOException, InterruptedException {
        this.directory = directory;
        List<ServerSocket> held = new ArrayList<>();
        for (int broker = 0; broker < COUNT; broker++) {
            held.add(new ServerSocket(0));
            ports[broker] = held.get(held.size() - 1).getLocalPort();
            held.add(new ServerSocket(0));
            controllerPorts[broker] = held.get(held.size() - 1).getLocalPort();
        }
        for (ServerSocket socket : held) {
            socket.close();
        }
        String cluster = Uuid.randomUuid().toString();
        List<Jvm> formatting = new ArrayList<>();
        for (int broker = 0; broker < COUNT; broker++) {
            Files.writeString(properties(broker), configuration(broker));
            formatting.add(Jvm.start(log(broker), HEAP_MEGABYTES, "kafka.tools.StorageTool",
                    "format", "-t", cluster, "-c", properties(broker).toString()));
        }
        for (Jvm one : formatting) {
            one.finish();
        }
        for (int broker = 0; broker < COUNT; broker++) {
            start(broker);
        }
    }

    void start(int broker) throws IOException {
        processes[broker] = Jvm.start(log(broker), HEAP_MEGABYTES, "kafka.Kafka",
                properties(broker).toString());
    }

    void kill(int broker) throws InterruptedException {
        processes[broker].kill();
    }

    /** The addresses to which clients connect first. */
    String addresses() {
        List<String> addresses = new ArrayList<>();
        for (int port : ports) {
            addresses.add("127.0.0.1:" + port);
        }
        return String.join(",", addresses);
    }

    private Path properties(int broker) {
        return directory.resolve("broker-" + broker + ".properties");
    }

    private Path log(int broker) {
        return directory.resolve("broker-" + broker + ".log");
    }

    private String configuration(int broker) {
        List<String> voters = new ArrayList<>();
        for (int other = 0; other < COUNT; other++) {
            voters.add(other + "@127.0.0.1:" + controllerPorts[other]);
        }
        return String.join("\n",
                "process.roles=broker,controller",
                "node.id=" + broker,
                "controller.quorum.voters=" + String.join(",", voters),
                "listeners=PLAINTEXT://127.0.0.1:" + ports[broker]
                        + ",CONTROLLER://127.0.0.1:" + controllerPorts[broker],
                "controller.listener.names=CONTROLLER",
                "inter.broker.listener.name=PLAINTEXT",
                "log.dirs=" + directory.resolve("broker-" + broker),
                "default.replication.factor=3",
                "min.insync.replicas=2",
                "offsets.topic.replication.factor=3",
                "offsets.topic.num.partitions=4",
                "transaction.state.log.replication.factor=3",
                "transaction.state.log.min.isr=2",
                "transaction.state.log.num.partitions=4",
                "group.initial.rebalance.delay.ms=0",
                "num.network.threads=2",
                "num.io.threads=2",
                "log.cleaner.dedupe.buffer.size=16777216",
                "auto.create.topics.enable=false", "");
    }

    @Override
    public void close() {
        for (Jvm process : processes) {
            if (process != null) {
                process.close();
            }
        }
    }
}
