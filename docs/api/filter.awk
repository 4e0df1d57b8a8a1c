# SPDX-License-Identifier: Apache-2.0
# Turns the plain comments of a public header into Doxygen's, so that the headers need none of its syntax:
#   a comment before a declaration documents it, and those after it until an empty line or the next comment;
#   a comment after a declaration, on its line, documents it;
#   opaque types, NAME_init_sized, NAME_init, and members without a comment get a standard one.
# Whatever else has no comment is an error of `ninja docs`.

# escape COMMENT: without the characters that have a meaning for Doxygen.
function escape(comment) {
	gsub(/[\\@<>#%&"]/, "\\\\&", comment)
	return comment
}

# standard LINE: the comment of a declaration that needs none in the header; "": it needs one.
function standard(line) {
	if (line ~ /^typedef struct [a-z_0-9]+ [a-z_0-9]+;/)
		return "An opaque type."
	if (line ~ /^BETON_API void [a-z_0-9]+_init_sized\(/)
		return "Sets the defaults of a struct with the caller's size."
	if (line ~ /^static inline void [a-z_0-9]+_init\(/)
		return "Sets the defaults."
	if (line ~ /^typedef struct [a-z_0-9]+_options \{/)
		return "Options: see the members."
	if (line ~ /^typedef struct [a-z_0-9]+_attrs \{/)
		return "Attributes of an op."
	return ""
}

# declare LINE: prints the first line of a declaration, with its comment.
function declare(line, known) {
	known = standard(line)
	if (!fresh && depth == 0 && line !~ /^(extern|[{}]|#(if|el|endif|include|undef))/) {
		if (known != "")
			print "/** " known " */"
		else if (group != "")
			print "/** " group " */"
	} else if (!fresh && depth == 1 && group != "")
		print "/** " group " */"
	else if (!fresh && depth == 1 && line ~ /[,;]$/)
		line = line " /**< As its name says. */"
	print line
}

# split_names LINE: a member for each name of the line but the last; returns the last. Doxygen gives a comment to one name.
function split_names(line, indent, names, count, i, type) {
	if (depth != 1 || body || open || line !~ /^[ \t]+[a-zA-Z_][a-zA-Z_0-9 *]*(\[[A-Z_0-9a-z]*\])?(, \**[a-z_0-9]+(\[[A-Z_0-9a-z]*\])?)+;[ \t]*$/)
		return line
	match(line, /^[ \t]+/)
	indent = substr(line, 1, RLENGTH)
	sub(/^[ \t]+/, "", line)
	sub(/;[ \t]*$/, "", line)
	count = split(line, names, /, /)
	match(names[1], /^.*[ ]/)
	type = substr(names[1], 1, RLENGTH)
	names[1] = substr(names[1], RLENGTH + 1)
	if (fresh)
		print indent type names[1] ";"
	for (i = fresh ? 2 : 1; i < count; i++)
		print indent type names[i] "; /**< See " plain(names[fresh ? 1 : count]) ". */"
	return indent type names[count] ";" (fresh ? " /**< See " plain(names[1]) ". */" : "")
}

# plain NAME: a declarator without stars and dimensions.
function plain(name) {
	gsub(/\*|\[.*/, "", name)
	return name
}

# code LINE: a line without a comment.
function code(line) {
	if (line ~ /^[ \t]*$/) {
		group = ""
		fresh = 0
		print line
		return
	}
	line = split_names(line)
	if (open || line ~ /^[ \t]*[{}]/ || depth > 1 || body)
		print line
	else
		declare(line)
	fresh = 0
	sub(/ *\/\*\*<.*/, "", line)
	if (line ~ /^{/)
		body = 1
	if (line ~ /^extern "C" {/)
		return
	if (line ~ /{$/) {
		depth++
		group = ""
	}
	if (line ~ /^[ \t]*}/) {
		depth -= depth > 0
		group = ""
		body = 0
	}
	open = line ~ /^[ \t]*#/ ? line ~ /\\$/ : line !~ /[;,{}]$/ || (depth == 0 && line ~ /,$/)
}

FNR == 1 && /^\/\* SPDX/ {
	print "/** @file"
	inside = 1
	next
}
macro || /^#define .*\\$/ {
	macro = /\\$/
	gsub(/\/\*[^*]*\*\//, "")
	print
	fresh = 0
	next
}
inside {
	end = index($0, "*/")
	text = escape(end ? substr($0, 1, end - 1) : $0)
	print text (end ? "*/" : "")
	sub(/^[ \t]*\*?/, "", text)
	if (leads)
		comment = comment " " text
	inside = !end
	if (end && leads) {
		group = comment
		fresh = 1
	}
	next
}
{
	start = index($0, "/*")
	if (!start) {
		code($0)
		next
	}
	before = substr($0, 1, start - 1)
	rest = substr($0, start + 2)
	end = index(rest, "*/")
	inside = !end
	leads = before ~ /^[ \t]*$/
	comment = escape(end ? substr(rest, 1, end - 1) : rest)
	if (!leads)
		before = split_names(before) " "
	print before (leads ? "/**" : "/**<") comment (end ? "*/" : "")
	if (leads) {
		if (end) {
			group = comment
			fresh = 1
		}
	} else {
		fresh = 0
		group = ""
		sub(/[ \t]*$/, "", before)
		open = before ~ /^[ \t]*#/ ? 0 : before !~ /[;,{}]$/ || (depth == 0 && before ~ /,$/)
		if (before ~ /{$/ && before !~ /}/)
			depth++
	}
}
