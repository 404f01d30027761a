# SPDX-License-Identifier: Apache-2.0
"""Pages of the cache: which are free, which requests share, and which hold a prefix that a later request can use. Used
by engine.py."""
import collections
import hashlib


class Pages:
    """Numbers of pages. A page that holds page_size known tokens gets a name, the digest of all tokens up to its end.
    Requests whose tokens begin alike find it by that name, and read one copy of its keys."""

    def __init__(self, count, page_size):
        self.page_size = page_size
        self.free = collections.OrderedDict((page, None) for page in range(count))  # the longest unused first
        self.users = [0] * count
        self.names, self.named = {}, {}  # name of a page, and page of a name

    def take(self):
        """Returns a page for one request, or None. Its old keys are lost, so its name is too."""
        if not self.free:
            return None
        page, _ = self.free.popitem(last=False)
        if page in self.names:
            del self.named[self.names.pop(page)]
        self.users[page] = 1
        return page

    def give_back(self, pages):
        """Releases one use of each page. The first pages of a prefix stay findable longest."""
        for page in reversed(pages):
            self.users[page] -= 1
            if self.users[page] == 0:
                self.free[page] = None

    def find(self, tokens):
        """Returns the pages that hold the first tokens, and uses them. The last token is left, because a request needs
        its logits."""
        found = []
        for name in self._digests(tokens, (len(tokens) - 1) // self.page_size):
            page = self.named.get(name)
            if page is None:
                break
            self.users[page] += 1
            self.free.pop(page, None)
            found.append(page)
        return found

    def name(self, tokens, pages, begin, end):
        """Names the pages that became full when the keys of tokens[begin:end] were written."""
        first, last = begin // self.page_size, end // self.page_size
        if first == last:
            return
        for page, name in list(zip(pages, self._digests(tokens, last)))[first:]:
            if name not in self.named:
                self.named[name], self.names[page] = page, name

    def _digests(self, tokens, count):
        digest = hashlib.blake2b(digest_size=16)
        for page in range(count):
            words = tokens[page * self.page_size:(page + 1) * self.page_size]
            digest.update(b"".join(word.to_bytes(8, "little") for word in words))
            yield digest.digest()
