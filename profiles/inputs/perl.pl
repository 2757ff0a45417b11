# An index of the words of perl's own library, by file and line, then sorted and thinned out.
use strict;
use warnings;
use File::Find;

my (%index, @files);
for my $place (grep { -d } @INC) {
    find({ wanted => sub { push @files, $File::Find::name if /\.p[ml]$/ }, no_chdir => 1 }, $place);
}
my $most = shift;
for my $file (splice @{[sort @files]}, 0, $most) {
    open my $text, '<:raw', $file or next;
    while (my $line = <$text>) {
        push @{$index{$_}}, "$.:" . length $line for $line =~ /\b(\w{3,12})\b/g;
    }
}
my @often = sort { @{$index{$b}} <=> @{$index{$a}} || $a cmp $b } keys %index;
delete @index{grep { @{$index{$_}} < 3 } @often};
print scalar(@often), ' ', scalar(keys %index), ' ', length(join ',', map { @$_ } values %index), "\n";
