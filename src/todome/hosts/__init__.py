"""One thin file per kind of model: where its tokens are, and which hooks reduce them."""
