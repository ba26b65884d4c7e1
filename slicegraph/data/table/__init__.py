"""Files of molecules as streams of rows: CSV, TSV, SMI, Parquet."""
