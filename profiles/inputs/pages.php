<?php
// Pages of nested elements: written as text, parsed into trees that are kept for a while, changed.
final class Element
{
    public array $children = [];

    public function __construct(public string $name, public array $attributes)
    {
    }

    public function written(): string
    {
        $text = "<$this->name";
        foreach ($this->attributes as $name => $value) {
            $text .= " $name=\"$value\"";
        }
        $text .= '>';
        foreach ($this->children as $child) {
            $text .= is_string($child) ? $child : $child->written();
        }
        return "$text</$this->name>";
    }
}

function page(int $turn): string
{
    $parts = [];
    for ($count = mt_rand(20, 169); $count > 0; $count--) {
        $text = str_repeat('word' . mt_rand(0, 899) . ' ', mt_rand(0, 11));
        $parts[] = sprintf('<part id="%d" kind="k%d">%s<b>%s</b></part>', mt_rand(0, 4999), mt_rand(0, 8), $text, $text);
    }
    return "<page number=\"$turn\">" . implode($parts) . '</page>';
}

function parsed(string $text): Element
{
    preg_match_all('/<(\/?)(\w+)([^>]*)>([^<]*)/', $text, $found, PREG_SET_ORDER);
    $open = [new Element('', [])];
    foreach ($found as [, $end, $name, $attributes, $rest]) {
        if ($end) {
            array_pop($open);
        } else {
            preg_match_all('/(\w+)="([^"]*)"/', $attributes, $pairs);
            $element = new Element($name, array_combine($pairs[1], $pairs[2]));
            end($open)->children[] = $element;
            $open[] = $element;
        }
        if ($rest !== '') {
            end($open)->children[] = $rest;
        }
    }
    return $open[0]->children[0];
}

mt_srand(11);
$kept = [];
$total = 0;
for ($turn = 0; $turn < (int) $argv[1]; $turn++) {
    $kept[mt_rand(0, 149)] = parsed(page($turn));
    $changed = $kept[array_keys($kept)[mt_rand(0, count($kept) - 1)]];
    foreach ($changed->children as $place => $part) {
        if ($place % 3 == 0) {
            $part->children[] = str_repeat('more ', mt_rand(0, 19));
            $part->attributes['seen'] = "$turn";
        }
    }
    if ($turn % 40 == 39) {
        $total += array_sum(array_map(fn($each) => strlen($each->written()), $kept));
        foreach (array_chunk(array_keys($kept), mt_rand(2, 5)) as $some) {
            unset($kept[$some[0]]);
        }
    }
}
echo $total, ' ', count($kept), "\n";
