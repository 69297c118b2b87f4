"""`todome app`: dense and reduced side by side on a page, for anyone who has a browser.

Data flows one way: `form` (values of the controls, checked) -> `worker` (draws, one run at a time) -> `store` (writes
and compares the pictures) -> `session` (the runs of one visitor) -> `views` (their HTML). `layout` and `page` put these
together; `server` serves the page, behind the checks of `filter` and `throttle`, until `signals` end it.
"""
