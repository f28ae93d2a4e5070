// Documentation of the package.

/**
 * Runstone: an embedded key-value store, built as a log-structured merge tree.
 *
 * <p>Begin at {@link org.runstone.Store}. The library runs on Linux; its native part is in the jar.
 */
package org.runstone;
