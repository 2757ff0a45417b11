# Pages of nested elements: written as text, parsed into trees that are kept for a while, changed.
use strict;
use warnings;

my $seed = 11;
sub random {
    $seed = ($seed * 1103515245 + 12345) % 2147483648;
    return ($seed >> 8) % shift;
}

sub page {
    my $text = '<page number="' . shift . '">';
    for (0 .. 20 + random(150)) {
        my $words = ('word' . random(900) . ' ') x random(12);
        $text .= '<part id="' . random(5000) . '" kind="k' . random(9) . "\">$words<b>$words</b></part>";
    }
    return "$text</page>";
}

sub parsed {
    my $text = shift;
    my @open = ({children => []});
    while ($text =~ m{<(/?)(\w+)([^>]*)>([^<]*)}g) {
        my ($end, $name, $attributes, $rest) = ($1, $2, $3, $4);
        if ($end) {
            pop @open;
        } else {
            my $element = {name => $name, attributes => {$attributes =~ /(\w+)="([^"]*)"/g}, children => []};
            push @{$open[-1]{children}}, $element;
            push @open, $element;
        }
        push @{$open[-1]{children}}, $rest if length $rest;
    }
    return $open[0]{children}[0];
}

sub written {
    my $element = shift;
    return $element unless ref $element;
    my $names = join '', map { " $_=\"$element->{attributes}{$_}\"" } sort keys %{$element->{attributes}};
    return "<$element->{name}$names>" . join('', map { written($_) } @{$element->{children}}) . "</$element->{name}>";
}

my %kept;
my $total = 0;
for my $turn (0 .. shift(@ARGV) - 1) {
    $kept{random(150)} = parsed(page($turn));
    my $changed = $kept{(sort keys %kept)[random(scalar keys %kept)]};
    my $place = 0;
    for my $part (@{$changed->{children}}) {
        next if $place++ % 3;
        push @{$part->{children}}, 'more ' x random(20);
        $part->{attributes}{seen} = $turn;
    }
    next if $turn % 40 != 39;
    $total += length written($_) for values %kept;
    my $step = 2 + random(4);
    my @numbers = sort keys %kept;
    delete @kept{@numbers[grep { $_ % $step == 0 } 0 .. $#numbers]};
}
print $total, ' ', scalar(keys %kept), "\n";
