// The entry point through which the threads of a store report its events.

package org.runstone;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.function.Consumer;

/** Passes events to a listener. Exceptions of the listener are logged, and the store continues. */
final class Events {
    private static final Logger LOG = System.getLogger("org.runstone");

    private final String path;
    private final Consumer<StoreEvent> listener;

    /** With a null listener, events are logged; those that need attention are warnings. */
    Events(String path, Consumer<StoreEvent> listener) {
        this.path = path;
        this.listener = listener == null ? this::log : listener;
    }

    private void log(StoreEvent event) {
        LOG.log(event.isWarning() ? Level.WARNING : Level.DEBUG, path + ": " + event.message());
    }

    /** Called by the native side. */
    private void tell(String kind, boolean isWarning, String message, String[] fields) {
        try {
            listener.accept(StoreEvent.of(kind, isWarning, message, fields));
        } catch (Throwable thrown) {
            LOG.log(Level.WARNING, path + ": a listener threw on " + kind, thrown);
        }
    }
}
