// Compiles and runs the example of docs/how-to/java.md.

package org.runstone;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.ByteArrayOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class HowToTest {
    private static final Path DOCUMENT = Path.of("../../../docs/how-to/java.md");

    @TempDir
    Path directory;

    @Test
    void theExampleRuns() throws Exception {
        String document = Files.readString(DOCUMENT);
        int from = document.indexOf("```java\n") + "```java\n".length();
        String example = document.substring(from, document.indexOf("```", from))
                .replace("\"my-store\"", "\"" + directory.resolve("my-store") + "\"");
        Path source = directory.resolve("Example.java");
        Files.writeString(source, "import java.nio.file.Path;\nimport org.runstone.*;\n"
                + "public class Example {\n  public static void main(String[] arguments) {\n"
                + example + "  }\n}\n");
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        int failures = ToolProvider.getSystemJavaCompiler().run(null, said, said,
                "-cp", System.getProperty("java.class.path"), "-d", directory.toString(),
                source.toString());
        assertEquals(0, failures, said.toString());
        Process process = new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-cp", directory + ":" + System.getProperty("java.class.path"), "Example")
                .redirectErrorStream(true).start();
        assertEquals("apple: red\nbanana: yellow\n",
                new String(process.getInputStream().readAllBytes()));
        assertEquals(0, process.waitFor());
    }
}
