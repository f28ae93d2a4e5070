// Documentation of the package.

/**
 * State stores of Kafka Streams that keep their data in Runstone.
 *
 * <p>For a whole application, set {@code dsl.store.suppliers.class =
 * org.runstone.kafka.streams.RunstoneDslStoreSuppliers}. For single stores, see {@link
 * org.runstone.kafka.streams.RunstoneStores}.
 */
package org.runstone.kafka.streams;
