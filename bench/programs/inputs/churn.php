<?php
// Arrays, strings, objects with cycles and serialisation; the caller turns PHP's own heap off.
$rounds = (int)$argv[1];
$seed = 7;
$kept = [];
$checksum = 0;

final class Node
{
    public ?Node $peer = null;

    public function __construct(public string $text)
    {
    }
}

for ($round = 1; $round <= $rounds; $round++) {
    for ($i = 0; $i < 300; $i++) {
        $seed = ($seed * 1103515245 + 12345) % 2147483648;
        $slot = ($seed >> 8) % 3000;
        if (isset($kept[$slot])) {
            $checksum = ($checksum * 31 + strlen($kept[$slot]->text)) % 1000000007;
        }
        $node = new Node(str_repeat(chr(97 + $seed % 26), ($seed >> 14) % 300));
        $node->peer = new Node((string)$round);
        $node->peer->peer = $node;
        $kept[$slot] = $node;
    }
    if ($round % 50 === 0) {
        ksort($kept);
        $texts = array_map(fn (Node $node): string => strrev($node->text), $kept);
        $packed = serialize($texts);
        $checksum = ($checksum + crc32($packed) + count(unserialize($packed))) % 1000000007;
        $json = json_encode(array_values($texts), JSON_THROW_ON_ERROR);
        preg_match_all('/"(a+)"/', $json, $found);
        echo $round, ' ', strlen($json), ' ', count($found[1]), ' ', $checksum, "\n";
    }
}
gc_collect_cycles();
echo 'checksum ', $checksum, "\n";
