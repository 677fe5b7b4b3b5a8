//! An async task-graph scheduler for initialising operators on heterogeneous devices: a host lane, one serialized lane per operator type, one-shot barriers.
