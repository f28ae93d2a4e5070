// The reports of an instance about the records that it replays.

package org.runstone.kafka.streams.cluster;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Reads the lines that an {@link Instance} has written to its log since a mark. */
final class Replays {
    private static final Pattern LINE =
            Pattern.compile("REPLAY (\\S+) (\\S+) from (-?\\d+) records (\\d+)");

    private final Path log;
    private int read;

    Replays(Path log) {
        this.log = log;
    }

    /** Only lines from here on count. */
    void mark() throws IOException {
        read = Files.readAllLines(log).size();
    }

    private List<Matcher> lines() throws IOException {
        if (!Files.exists(log)) {
            return List.of();
        }
        return Files.readAllLines(log).stream().skip(read).map(LINE::matcher)
                .filter(Matcher::find).toList();
    }

    /** Whether a store has begun to replay, or had nothing to replay. */
    boolean hasBegun() throws IOException {
        return lines().stream().anyMatch(line -> line.group(1).endsWith("-begin"));
    }

    /** The offset at which each store first began; 0 means from the beginning. */
    private Map<String, Long> beginnings() throws IOException {
        Map<String, Long> beginnings = new TreeMap<>();
        for (Matcher line : lines()) {
            if (line.group(1).endsWith("-begin")) {
                beginnings.putIfAbsent(line.group(2), Long.valueOf(line.group(3)));
            }
        }
        return beginnings;
    }

    /** How many stores began after the beginning of their changelogs. */
    int resumed() throws IOException {
        return (int) beginnings().values().stream().filter(from -> from > 0).count();
    }

    String summary() throws IOException {
        Map<String, Long> beginnings = beginnings();
        long skipped = beginnings.values().stream().mapToLong(Long::longValue).sum();
        long replayed = 0;
        for (Matcher line : lines()) {
            if (line.group(1).equals("active") || line.group(1).equals("standby")) {
                replayed += Long.parseLong(line.group(4));
            }
        }
        return resumed() + " of " + beginnings.size() + " stores resumed where they had stopped; "
                + skipped + " offsets of the changelogs were skipped, and " + replayed
                + " records replayed";
    }
}
