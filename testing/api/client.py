"""Lists torrents, adds a user's key, and reads which keys have changed, by a client that was generated from the API's
document (docs/api.md says how):

    python3 client.py http://127.0.0.1:6970 TOKEN NAME SINCE
"""

import sys

from tidegate_api.api.keys import get_keys, post_keys
from tidegate_api.api.torrents import get_torrents
from tidegate_api.client import AuthenticatedClient
from tidegate_api.models import GetTorrentsSort, NewKey, Problem
from tidegate_api.types import Unset


def checked(answer):
    """Returns an answer that is not a problem."""
    if isinstance(answer, Problem):
        sys.exit(f"{answer.title}: {answer.detail}")
    return answer


url, token, name, since = sys.argv[1:]
client = AuthenticatedClient(base_url=f"{url}/api/v1", token=token)

for torrent in checked(get_torrents.sync(client=client, sort=GetTorrentsSort.SEEDERS, limit=10)).torrents:
    print("torrent", torrent.info_hash, torrent.seeders, torrent.leechers)

if name:
    key = checked(post_keys.sync(client=client, body=NewKey(name=name, torrents=20)))
    print("key", key.id, key.key)

cursor = 0
while not isinstance(cursor, Unset) and cursor is not None:
    page = checked(get_keys.sync(client=client, changed_since=int(since), cursor=cursor))
    for key in page.keys:
        print("changed", key.id, key.name, key.totals.uploaded, key.totals.downloaded)
    cursor = page.next_
