// A Java process of the cluster run.

package org.runstone.kafka.streams.cluster;

import java.io.File;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A process that runs a main class with this process's classpath, and writes to a log. */
final class Jvm implements AutoCloseable {
    private final Process process;

    private Jvm(Process process) {
        this.process = process;
    }

    static Jvm start(Path log, int heapMegabytes, String main, String... arguments)
            throws IOException {
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Xmx" + heapMegabytes + "m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                "-Drunstone.library=" + System.getProperty("runstone.library"),
                "-cp", System.getProperty("java.class.path"),
                main));
        command.addAll(List.of(arguments));
        File file = log.toFile();
        Process process = new ProcessBuilder(command).redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(file)).start();
        return new Jvm(process);
    }

    /** Waits for the end of a process that does a single task. */
    void finish() throws InterruptedException {
        if (!process.waitFor(120, TimeUnit.SECONDS) || process.exitValue() != 0) {
            throw new IllegalStateException("a process failed or hangs: " + process.info());
        }
    }

    boolean isAlive() {
        return process.isAlive();
    }

    /** SIGKILL: no part of the process runs any more. */
    void kill() throws InterruptedException {
        process.destroyForcibly();
        process.waitFor();
    }

    @Override
    public void close() {
        process.destroyForcibly();
    }
}
