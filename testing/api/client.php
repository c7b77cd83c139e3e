<?php
// Lists torrents, adds a user's key, and reads which keys have changed, by a client that was generated from the API's
// document (docs/api.md says how). LIB is its folder `lib`:
//
//     php client.php LIB http://127.0.0.1:6970 TOKEN NAME SINCE

// Guzzle of Debian's package php-guzzlehttp-guzzle. With Composer, its vendor/autoload.php has all classes.
require 'GuzzleHttp/autoload.php';

use Tidegate\Api\KeysApi;
use Tidegate\Api\TorrentsApi;
use Tidegate\ApiException;
use Tidegate\Configuration;
use Tidegate\Model\NewKey;

[, $lib, $url, $token, $name, $since] = $argv;
spl_autoload_register(function (string $class) use ($lib): void {
    if (str_starts_with($class, 'Tidegate\\')) {
        require $lib . '/' . strtr(substr($class, strlen('Tidegate\\')), '\\', '/') . '.php';
    }
});

$config = Configuration::getDefaultConfiguration()->setHost("$url/api/v1")->setAccessToken($token);
$client = new GuzzleHttp\Client(['timeout' => 30]);
$keys = new KeysApi($client, $config);

try {
    $torrents = (new TorrentsApi($client, $config))->getTorrents(limit: 10, sort: 'seeders');
    foreach ($torrents->getTorrents() as $torrent) {
        printf("torrent %s %d %d\n", $torrent->getInfoHash(), $torrent->getSeeders(), $torrent->getLeechers());
    }
    if ($name !== '') {
        $key = $keys->postKeys(new NewKey(['name' => $name, 'torrents' => 20]));
        printf("key %d %s\n", $key->getId(), $key->getKey());
    }
    $cursor = null;
    do {
        $page = $keys->getKeys(cursor: $cursor, changed_since: (int) $since);
        foreach ($page->getKeys() as $key) {
            $totals = $key->getTotals();
            $words = [$key->getId(), $key->getName(), $totals->getUploaded(), $totals->getDownloaded()];
            echo 'changed ', implode(' ', $words), "\n";
        }
        $cursor = $page->getNext();
    } while ($cursor !== null);
} catch (ApiException $error) {
    fwrite(STDERR, $error->getResponseBody() ?? $error->getMessage());
    exit(1);
}
