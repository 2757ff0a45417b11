# Syntax trees of the standard library, kept for a while, and an index of its words.
require 'ripper'

files = Dir["#{RbConfig::CONFIG['rubylibdir']}/{optparse,net,json,rubygems,reline,psych}/**/*.rb"]
kept = []
words = Hash.new { |all, word| all[word] = [] }
files.sort.first(Integer(ARGV[0])).each do |file|
  text = File.read(file)
  kept << Ripper.sexp(text)
  kept.shift if kept.size > 30
  text.scan(/\w+/) { |word| words[word] << file.size }
end
puts kept.size, words.size
