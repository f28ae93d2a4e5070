// Finds and loads the native library, and refuses a library of another version.

package org.runstone;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.runstone.RunstoneException.Code;

/**
 * The native library. It is the file that the system property {@value #PROPERTY} names, or the one
 * in the jar. The latter is copied to a temporary directory, loaded, and removed at once; the
 * library stays loaded.
 */
final class Library {
    static final String PROPERTY = "runstone.library";
    private static final String FILE = "librunstone_java.so";

    private static boolean isLoaded;

    private Library() {
    }

    /** Loads the library once. If that fails, each later attempt fails with the same exception. */
    static synchronized void load() {
        if (isLoaded) {
            return;
        }
        String given = System.getProperty(PROPERTY);
        if (given == null) {
            extract();
        } else {
            link(Path.of(given).toAbsolutePath());
        }
        String found;
        try {
            found = Native.version();
        } catch (UnsatisfiedLinkError missing) {
            throw failure("the native library tells no version; it is none of Runstone's: "
                    + (given == null ? FILE + " of the jar" : given));
        }
        check(found, ownVersion(), given == null ? "in the jar" : given);
        isLoaded = true;
    }

    /** Refuses a library that was not built with this jar. */
    private static void check(String found, String own, String where) {
        if (!found.equals(own)) {
            throw failure("the native library (" + where + ") is of version " + found
                    + ", and the jar of version " + own
                    + "; use both of one release, or leave " + PROPERTY + " out");
        }
    }

    static String ownVersion() {
        Properties properties = new Properties();
        try (InputStream in = Library.class.getResourceAsStream("version.properties")) {
            properties.load(in);
        } catch (IOException | NullPointerException broken) {
            throw failure("the jar does not tell its version: " + broken);
        }
        return properties.getProperty("version");
    }

    /** The path in the jar of the library for this machine. */
    static String place() {
        return "linux-" + System.getProperty("os.arch") + "/" + FILE;
    }

    private static void extract() {
        try (InputStream in = Library.class.getResourceAsStream(place())) {
            if (in == null) {
                throw failure("the jar has no native library for " + System.getProperty("os.name")
                        + " on " + System.getProperty("os.arch")
                        + "; build it (see bindings/java) and name it by " + PROPERTY);
            }
            Path directory = Files.createTempDirectory("runstone");
            Path file = directory.resolve(FILE);
            try {
                Files.copy(in, file);
                link(file);
            } finally {
                Files.deleteIfExists(file);
                Files.delete(directory);
            }
        } catch (IOException error) {
            throw failure("the native library cannot be copied to "
                    + System.getProperty("java.io.tmpdir") + ": " + error
                    + "; name one by " + PROPERTY);
        }
    }

    private static void link(Path file) {
        try {
            System.load(file.toString());
        } catch (UnsatisfiedLinkError error) {
            throw failure("the native library cannot be loaded: " + error.getMessage());
        }
    }

    private static RunstoneException failure(String message) {
        return new RunstoneException(Code.LIBRARY, message);
    }
}
