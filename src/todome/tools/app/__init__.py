"""`todome app`: dense and reduced side by side on a page, for whoever runs it.

Data flows one way: `form` (values of the controls, checked) -> `drawing` (one run at a time, in a thread) -> `runs`
(writes and compares the pictures, keeps the last runs) -> `results` (what is seen of a run). `controls`, `results`,
`tune_tab` and `start` are the parts that one sees; `page` connects them, and `server` serves them.
"""
