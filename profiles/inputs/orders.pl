# Orders as records of many fields: read from text, grouped, changed, and written as JSON.
use strict;
use warnings;
use JSON::PP;

my $seed = 3;
sub random {
    $seed = ($seed * 1103515245 + 12345) % 2147483648;
    return ($seed >> 8) % shift;
}

my $text = join "\n", map {
    join ',', $_, 'customer ' . random(500), '2024-' . (1 + random(12)) . '-' . (1 + random(28)),
        random(90000), 'x' x random(80)
} 1 .. shift;
my @orders;
for my $line (split /\n/, $text) {
    my %order;
    @order{qw(number customer day amount note)} = split /,/, $line, -1;
    push @orders, \%order;
}
my $total = 0;
my $json = JSON::PP->new->canonical;
for my $turn (0 .. 5) {
    my (%months, %sums);
    push @{$months{"$_->{customer} " . substr $_->{day}, 0, 7}}, $_ for @orders;
    for my $month (keys %months) {
        $sums{$month} += $_->{amount} for @{$months{$month}};
    }
    my @rows = @orders[grep { $_ % 60 == $turn } 0 .. $#orders];
    my $written = $json->encode({sums => {map { $_ => $sums{$_} } (sort keys %sums)[0 .. 200]}, rows => \@rows});
    $total += @{$json->decode($written)->{rows}} + length $written;
    for (my $place = $turn; $place < @orders; $place += 5) {
        my $old = $orders[$place];
        $orders[$place] = {%$old, amount => $old->{amount} * 2, note => substr($old->{note} . ' ' x 40, random(40))};
    }
}
print $total, ' ', scalar(@orders), "\n";
