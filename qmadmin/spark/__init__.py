"""qmspark: moving whole queue spaces, and looking into them, on Apache Spark. PySpark is imported nowhere else."""
