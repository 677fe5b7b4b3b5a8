//! Runnable programs on Hostlane, among them generate, the main job.
