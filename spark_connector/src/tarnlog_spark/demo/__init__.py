"""A data pipeline on one laptop: a service, Spark, and what several jobs do to one table at the same time."""
