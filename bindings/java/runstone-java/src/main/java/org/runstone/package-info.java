// Documentation of the package.

/**
 * Runstone: an embedded key-value store, built as a log-structured merge tree.
 *
 * <p>Start with {@link org.runstone.Store}. The library runs on Linux; its native part is in the
 * jar.
 */
package org.runstone;
