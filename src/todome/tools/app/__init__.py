"""`todome app`: dense and reduced side by side on a page, for anyone who has a browser.

Data flows one way: `form` (what the controls say, checked) -> `studio` (draws it, one picture at a time) -> `archive`
(writes and compares it) -> `session` (the runs of one visitor) -> `views` (what is seen of them). `layout` and `page`
put these together, and `server` lets people in.
"""
