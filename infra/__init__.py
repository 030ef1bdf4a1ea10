"""What Seam runs on: settings, the Spark session, jars, embedded Kafka and PostgreSQL, the producer."""
