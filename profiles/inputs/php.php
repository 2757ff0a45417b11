<?php
// An index of random words by document, some documents replaced, and what is left written out.
mt_srand(5);
$documents = $index = [];
for ($turn = 0; $turn < (int) $argv[1]; $turn++) {
    $slot = mt_rand(0, 999);
    foreach ($documents[$slot] ?? [] as $word) {
        unset($index[$word][$slot]);
    }
    $documents[$slot] = [];
    for ($place = mt_rand(5, 40); $place > 0; $place--) {
        $word = str_repeat(chr(mt_rand(97, 122)), mt_rand(1, 60)) . mt_rand(0, 300);
        $documents[$slot][] = $word;
        $index[$word][$slot] = $place;
    }
}
ksort($documents);
echo count($index), ' ', strlen(serialize($documents)), "\n";
