"""Reading things in: formats that decode what there is into columns, and the job that writes the columns as tables."""
