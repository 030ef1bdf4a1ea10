"""What is computed: the event, the measures, the windows and one file per view. Imports nothing else of Seam."""
