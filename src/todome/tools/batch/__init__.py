"""`todome batch`: many pictures from a file of rows.

rows.py      reads the rows: text, JSONL, CSV, Parquet
jobs.py      makes a job of each row, with a key made of its content, and puts those together that one call can draw
drawing.py   the worker that draws jobs, each picture into its file; an engine has one or many of it
folder.py    the folder: pictures, the index of what was made and of what failed
shards.py    packs finished pictures into WebDataset or Parquet files
run.py       the whole: what is left to do, done by an engine, written down as it comes
sample.py    some of the pictures on a page, for `todome report`
"""
