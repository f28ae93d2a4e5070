//! Single cases of repairs, each with the hazard that it shows.
