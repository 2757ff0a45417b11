# Hashes of arrays, regular expressions and sorting, in the main thread, in threads and in a fork.
use strict;
use warnings;
use threads;

my $rounds = shift @ARGV;

sub work {
    my ($seed, $turns) = @_;
    my %index;
    my $checksum = 0;
    for my $turn (1 .. $turns) {
        for (1 .. 300) {
            $seed = ($seed * 1103515245 + 12345) % 2147483648;
            my $key = "key" . ($seed >> 8) % 4000;
            push @{ $index{$key} }, { turn => $turn, text => "x" x (($seed >> 12) % 150) };
            delete $index{$key} if @{ $index{$key} } > 12;
        }
        next if $turn % 25;
        my $text = join ";", map { "$_=" . join ",", map { length $_->{text} } @{ $index{$_} } }
          sort keys %index;
        $text =~ s/(\d)(\d)/$2$1/g;
        my @long = grep { length > 8 } split /[;,]/, $text;
        $checksum = ($checksum * 33 + length($text) + @long) % 1000000007;
    }
    return $checksum;
}

print "main ", work(7, $rounds), "\n";
my @threads = map { my $seed = $_; threads->create(sub { work($seed, $rounds / 4) }) } 1 .. 3;
print "thread $_ ", $threads[$_]->join, "\n" for 0 .. $#threads;

pipe my $from_child, my $to_parent or die "pipe: $!";
my $child = fork // die "fork: $!";
if ($child == 0) {
    print {$to_parent} "child ", work(99, $rounds / 4), "\n";
    exit 0;
}
close $to_parent;
print while <$from_child>;
waitpid $child, 0;
die "child ended with $?" if $?;
