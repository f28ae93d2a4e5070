// Puts Runstone's stores in place of RocksDB's, so that Kafka's own tests run over them.

package org.runstone.kafka.streams.foreign;

import static net.bytebuddy.matcher.ElementMatchers.isMethod;
import static net.bytebuddy.matcher.ElementMatchers.isStatic;
import static net.bytebuddy.matcher.ElementMatchers.nameEndsWith;
import static net.bytebuddy.matcher.ElementMatchers.nameStartsWith;
import static net.bytebuddy.matcher.ElementMatchers.not;

import java.time.Duration;
import net.bytebuddy.ByteBuddy;
import net.bytebuddy.agent.ByteBuddyAgent;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.dynamic.loading.ClassReloadingStrategy;
import net.bytebuddy.implementation.bytecode.assign.Assigner;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers;
import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.Stores;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.runstone.kafka.streams.RunstoneDslStoreSuppliers;
import org.runstone.kafka.streams.RunstoneStores;

/**
 * Changes the results of two Kafka classes: the methods of {@code Stores} for persistent stores,
 * and the default suppliers of an application. {@code foreign.sh} enables it.
 */
public final class InPlaceOfRocks implements BeforeAllCallback {
    private static boolean isDone;

    /** Used by JUnit, which finds this class as a service. */
    public InPlaceOfRocks() {
        // Nothing to set.
    }

    @Override
    public void beforeAll(ExtensionContext context) {
        if (isDone || !"runstone".equals(System.getProperty("runstone.foreign"))) {
            return;
        }
        isDone = true;
        ByteBuddyAgent.install();
        var advice = Advice.to(Exchange.class);
        var strategy = ClassReloadingStrategy.fromInstalledAgent();
        new ByteBuddy().redefine(Stores.class)
                .visit(advice.on(isStatic().and(nameStartsWith("persistent"))))
                .make().load(Stores.class.getClassLoader(), strategy);
        new ByteBuddy().redefine(RocksDBDslStoreSuppliers.class)
                .visit(advice.on(isMethod().and(not(isStatic())).and(nameEndsWith("Store"))))
                .make().load(RocksDBDslStoreSuppliers.class.getClassLoader(), strategy);
    }

    /** This code is copied to the end of each method. */
    static final class Exchange {
        private Exchange() {
        }

        @Advice.OnMethodExit
        static void exit(@Advice.Origin("#m") String method,
                @Advice.AllArguments Object[] arguments,
                @Advice.Return(readOnly = false, typing = Assigner.Typing.DYNAMIC)
                Object supplier) {
            supplier = instead(method, arguments);
        }
    }

    /** The Runstone supplier for a call that made a RocksDB supplier. */
    public static Object instead(String method, Object[] with) {
        var dsl = new RunstoneDslStoreSuppliers();
        return switch (method) {
            case "keyValueStore" -> dsl.keyValueStore((DslKeyValueParams) with[0]);
            case "windowStore" -> dsl.windowStore((DslWindowParams) with[0]);
            case "sessionStore" -> dsl.sessionStore((DslSessionParams) with[0]);
            case "persistentKeyValueStore" -> RunstoneStores.keyValueStore((String) with[0]);
            case "persistentTimestampedKeyValueStore" ->
                    RunstoneStores.timestampedKeyValueStore((String) with[0]);
            case "persistentTimestampedKeyValueStoreWithHeaders" ->
                    RunstoneStores.timestampedKeyValueStoreWithHeaders((String) with[0]);
            case "persistentVersionedKeyValueStore" ->
                    RunstoneStores.versionedKeyValueStore((String) with[0], (Duration) with[1]);
            case "persistentWindowStore" -> RunstoneStores.windowStore((String) with[0],
                    (Duration) with[1], (Duration) with[2], (Boolean) with[3]);
            case "persistentTimestampedWindowStore" -> RunstoneStores.timestampedWindowStore(
                    (String) with[0], (Duration) with[1], (Duration) with[2], (Boolean) with[3]);
            case "persistentTimestampedWindowStoreWithHeaders" ->
                    RunstoneStores.timestampedWindowStoreWithHeaders((String) with[0],
                            (Duration) with[1], (Duration) with[2], (Boolean) with[3]);
            case "persistentSessionStore" ->
                    RunstoneStores.sessionStore((String) with[0], (Duration) with[1]);
            case "persistentSessionStoreWithHeaders" ->
                    RunstoneStores.sessionStoreWithHeaders((String) with[0], (Duration) with[1]);
            default -> throw new IllegalStateException("no store of ours for " + method);
        };
    }
}
