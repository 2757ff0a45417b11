<?php
// Orders as objects of many fields: read from CSV, grouped, changed, and written as JSON.
final class Order
{
    public function __construct(
        public int $number,
        public string $customer,
        public string $day,
        public float $amount,
        public string $note,
    ) {
    }
}

mt_srand(3);
$orders = [];
for ($number = 0; $number < (int) $argv[1]; $number++) {
    $line = sprintf('%d,"customer %d",2024-%02d-%02d,%.2f,%s', $number, mt_rand(0, 499), mt_rand(1, 12),
        mt_rand(1, 28), mt_rand(0, 90000) / 100, str_repeat('x', mt_rand(0, 79)));
    [$first, $customer, $day, $amount, $note] = str_getcsv($line);
    $orders[] = new Order((int) $first, $customer, $day, (float) $amount, $note);
}
$total = 0;
for ($turn = 0; $turn < 6; $turn++) {
    $months = [];
    foreach ($orders as $order) {
        $months[$order->customer . substr($order->day, 0, 7)][] = $order;
    }
    $sums = array_map(fn($group) => array_sum(array_column($group, 'amount')), $months);
    $rows = array_filter($orders, fn($place) => $place % 6 == $turn, ARRAY_FILTER_USE_KEY);
    $text = json_encode(['sums' => $sums, 'rows' => $rows]);
    $total += count(json_decode($text, true)['rows']) + strlen($text);
    for ($place = $turn; $place < count($orders); $place += 5) {
        $old = $orders[$place];
        $orders[$place] = new Order($old->number, $old->customer, $old->day, $old->amount * 2,
            substr($old->note, mt_rand(0, 39)));
    }
}
echo $total, ' ', count($orders), "\n";
