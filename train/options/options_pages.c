/* SPDX-License-Identifier: Apache-2.0
 *
 * options-pages <PAGE: a document whose parts between the lines "begin: PART" and "end: PART" are made of the table of
 * options and of the recipes, on standard output. Not installed: what it writes is in the repository. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/system.h"
#include "options_table.h"

enum { TEXT_BYTES = 512, MANUAL_COLUMNS = 72 };

static bool is_possible(const option_row *row, const char *word, size_t length)
{
	for (int i = 0; run_row_possible(row, i); i++)
		if (strlen(run_row_possible(row, i)) == length && strncmp(run_row_possible(row, i), word, length) == 0)
			return true;
	return false;
}

/* A sentence. False: it is about options of dtrain-plan alone. */
static bool describe_constraint(const option_constraint *constraint, char text[TEXT_BYTES])
{
	const char *option = constraint->objects[0].option;
	char sentence[RUN_CONSTRAINT_BYTES];
	run_constraint_describe(constraint, sentence);
	size_t blank = strspn(sentence, " ");
	snprintf(text, TEXT_BYTES, "%c%s.", toupper((unsigned char)sentence[blank]), sentence + blank + 1);
	return !option || constraint->objects[0].is != OPTION_GIVEN || run_row_find(option) >= 0;
}

/* ---- the manual page ---- */

/* True if a word in capitals is part of the row's argument, for example MIN of MIN,MAX. */
static bool is_argument(const option_row *row, const char *word, size_t length)
{
	for (const char *at = row->argument; at && *at; at += strcspn(at, ",:[]|."), at += strspn(at, ",:[]|."))
		if (strcspn(at, ",:[]|.") == length && strncmp(at, word, length) == 0)
			return true;
	return false;
}

static size_t capitals(const char *text)
{
	size_t length = 0;
	while (isupper((unsigned char)text[length]))
		length++;
	return isalnum((unsigned char)text[length]) || text[length] == '_' ? 0 : length;
}

static void print_bold(const char *text, size_t length)
{
	fputs("\\fB", stdout);
	for (size_t i = 0; i < length; i++)
		printf("%s%c", text[i] == '-' ? "\\" : "", text[i]);
	fputs("\\fR", stdout);
}

/* True if the word at the beginning of the text has in it what names have: a mark, a hyphen, an underscore, a point
 * before a letter, or a capital or a digit inside. */
static bool has_name(const char *text)
{
	for (const char *at = text; *at && *at != ' '; at++) {
		unsigned char next = (unsigned char)at[1];
		if (strchr("`-_", *at) || (*at == '.' && isalpha(next)) || isupper(next) ||
		    (isalpha((unsigned char)*at) && isdigit(next)))
			return true;
	}
	return false;
}

/* Formats the word at the beginning of the text if it needs that; returns its length, or 0. */
static size_t print_word(const option_row *row, const char *text)
{
	size_t length = capitals(text);
	if (*text == '`') {
		length = strcspn(text + 1, "`");
		print_bold(text + 1, length);
		return length + 2;
	}
	if (strncmp(text, "--", 2) == 0) {
		length = 2 + strspn(text + 2, "abcdefghijklmnopqrstuvwxyz0123456789-");
		print_bold(text, length);
		return length;
	}
	if (length > 0 && is_argument(row, text, length))
		printf("\\fI%.*s\\fR", (int)length, text);
	else
		return 0;
	return length;
}

/* Starts each sentence on a new line, as roff recommends. "\%" keeps names whole: roff would hyphenate them, and
 * mdoc's next macro would turn hyphenation on again after ".nh". */
static void print_sentences(const option_row *row, const char *text)
{
	char before = ' ';
	while (*text) {
		if (before == ' ' && has_name(text))
			fputs("\\%", stdout);
		size_t word = isalnum((unsigned char)before) ? 0 : print_word(row, text);
		if (word > 0) {
			text += word;
			before = ')';
			continue;
		}
		bool ends = before == '.' && *text == ' ';
		before = *text++;
		if (ends && (isupper((unsigned char)*text) || *text == '`'))
			puts("");
		else
			printf("%s", before == '\\' ? "\\e" : (char[2]){before});
	}
	puts("");
}

static void print_option(const option_row *row)
{
	char text[TEXT_BYTES];
	for (const char *name = row->name; name; name = name == row->alias ? NULL : row->alias)
		printf(row->kind == OPTION_SWITCH ? "%s Fl -%s Ns Op = Ns Cm %s"
		       : row->argument            ? "%s Fl -%s Ar %s"
						  : "%s Fl -%s%s",
		       name == row->alias ? " ," : ".It", name, row->argument ? row->argument : "");
	puts("");
	run_row_describe(row, true, text, sizeof(text));
	if (!is_possible(row, text, strcspn(text, " ,")))
		text[0] = (char)toupper((unsigned char)text[0]);
	bt_append(text, sizeof(text), ".");
	print_sentences(row, text);
	if (row->manual)
		print_sentences(row, row->manual);
	for (const option_constraint *c = row->constraints; c && c->relation != OPTION_NO_MORE; c++) {
		describe_constraint(c, text);
		print_sentences(row, text);
	}
}

static void print_constraints(void)
{
	static const option_row no_row = {0};
	char text[TEXT_BYTES];
	puts(".Bl -bullet -compact");
	for (const option_constraint *c = run_constraints; c->relation != OPTION_NO_MORE; c++)
		if (describe_constraint(c, text)) {
			puts(".It");
			print_sentences(&no_row, text);
		}
	puts(".El");
}

static void print_manual(void)
{
	bool open = false;
	for (int i = 0; i < run_row_count; i++) {
		const option_row *row = &run_rows[i];
		if (row->kind != OPTION_GROUP) {
			print_option(row);
			continue;
		}
		printf("%s.Ss %s\n", open ? ".El\n" : "", row->name);
		if (row->manual)
			print_sentences(row, row->manual);
		puts(".Bl -tag -width Ds");
		open = true;
	}
	puts(".El");
}

static void print_recipes(void)
{
	static const option_row no_row = {0};
	char **names = run_recipe_names();
	puts(".Bl -tag -width Ds");
	for (int i = 0; names && names[i]; i++) {
		beton_error err;
		run_recipe *recipe = NULL;
		if (run_recipe_read(names[i], &recipe, &err) != BETON_OK) {
			fprintf(stderr, "options-pages: %s\n", err.message);
			exit(EXIT_FAILURE);
		}
		printf(".It Cm %s\n%s.\n", names[i], recipe->title);
		print_sentences(&no_row, recipe->about);
		puts(".Bd -literal");
		run_recipe_print(stdout, recipe, "", MANUAL_COLUMNS);
		puts(".Ed");
		run_recipe_free(&recipe);
	}
	run_recipe_names_free(names);
	puts(".El");
}

/* ---- completion, docs/reference/options.md ---- */

static void print_completion(void)
{
	for (int i = 0; i < run_row_count; i++) {
		const option_row *row = &run_rows[i];
		if (!run_row_possible(row, 0) || row->kind == OPTION_SWITCH)
			continue;
		printf("\tdtrain-ffcv:--%s) echo", row->name);
		for (int k = 0; run_row_possible(row, k); k++)
			printf(" %s", run_row_possible(row, k));
		puts(" ;;");
	}
}

/* Text in a cell of a Markdown table. */
static void print_cell(const char *text)
{
	for (; *text; text++)
		printf("%s", *text == '|' ? "\\|" : *text == '<' ? "&lt;" : (char[2]){*text});
}

static void print_reference_row(const option_row *row)
{
	char text[TEXT_BYTES];
	printf("| `--%s%s", row->name, !row->argument ? "" : row->kind == OPTION_SWITCH ? "[=" : " ");
	print_cell(row->argument ? row->argument : "");
	printf("%s`", row->argument && row->kind == OPTION_SWITCH ? "]" : "");
	if (row->alias)
		printf(", `--%s`", row->alias);
	run_row_describe(row, true, text, sizeof(text));
	printf(" | ");
	print_cell(text);
	printf(".%s", row->manual ? " " : "");
	print_cell(row->manual ? row->manual : "");
	for (const option_constraint *c = row->constraints; c && c->relation != OPTION_NO_MORE; c++) {
		describe_constraint(c, text);
		printf(" ");
		print_cell(text);
	}
	puts(" |");
}

static void print_reference_constraints(void)
{
	char text[TEXT_BYTES];
	puts("");
	for (const option_constraint *c = run_constraints; c->relation != OPTION_NO_MORE; c++)
		if (describe_constraint(c, text))
			printf("* %s\n", text);
	puts("");
}

static void print_reference(void)
{
	for (int i = 0; i < run_row_count; i++) {
		const option_row *row = &run_rows[i];
		if (row->kind != OPTION_GROUP) {
			print_reference_row(row);
			continue;
		}
		printf("\n## %s\n\n", row->name);
		if (row->manual)
			printf("%s\n\n", row->manual);
		puts("| option | meaning |\n|---|---|");
	}
}

static const struct part {
	const char *name;
	void (*print)(void);
} parts[] = {
	{"manual", print_manual},       {"constraints", print_constraints},
	{"recipes", print_recipes},     {"completion", print_completion},
	{"reference", print_reference}, {"listed-constraints", print_reference_constraints},
};

enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

/* The part that begins or ends at the line; NULL: none. */
static const struct part *find_part(const char *line, const char *marker)
{
	const char *name = strstr(line, marker);
	for (int i = 0; name && i < PARTS; i++) {
		size_t length = strlen(parts[i].name);
		if (strncmp(name + strlen(marker), parts[i].name, length) == 0 &&
		    isspace((unsigned char)name[strlen(marker) + length]))
			return &parts[i];
	}
	return NULL;
}

int main(void)
{
	const struct part *open = NULL;
	char *line = NULL;
	size_t room = 0;
	int made = 0;
	while (getline(&line, &room, stdin) >= 0) {
		const struct part *begins = find_part(line, "begin: ");
		if (open && find_part(line, "end: ") == open)
			open = NULL;
		if (!open)
			fputs(line, stdout);
		if (begins && !open) {
			begins->print();
			open = begins;
			made++;
		}
	}
	free(line);
	if (open || made == 0 || ferror(stdin) || fflush(stdout) != 0) {
		fprintf(stderr, "options-pages: %s%s\n", open ? "no line ends the part " : "no page with such parts",
			open ? open->name : "");
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
