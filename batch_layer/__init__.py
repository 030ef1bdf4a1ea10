"""The batch layer: Kafka into the master dataset, exact views from it every night, published at the seam."""
