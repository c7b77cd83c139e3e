//! Verdicts on trackers, good and bad.
