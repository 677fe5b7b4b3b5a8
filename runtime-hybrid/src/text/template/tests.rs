use super::*;

fn template(source: &str) -> Result<ChatTemplate> {
    let specials = vec![
        ("bos_token".to_owned(), "<s>".to_owned()),
        ("eos_token".to_owned(), "</s>".to_owned()),
    ];
    ChatTemplate::new(
        PathBuf::from("chat_template.jinja"),
        source.to_owned(),
        specials,
        || 1_722_297_600,
    )
}

#[track_caller]
fn check(source: &str, expected: &str) {
    let messages = [
        Message::system("be <brief>"),
        Message::user("hello"),
        Message::assistant("hi"),
        Message::user("bye "),
    ];
    assert_eq!(template(source).unwrap().render(&messages).unwrap(), expected);
}

#[track_caller]
fn check_error(source: &str, parts: &[&str]) {
    let error = template(source)
        .and_then(|t| t.render(&[Message::user("hello")]))
        .unwrap_err()
        .to_string();
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

#[test]
fn messages_special_tokens_and_generation_prompt() {
    check(
        "{{ bos_token }}{% for m in messages %}{{ m['role'] + ': ' + m.content }}{{ eos_token }}\n{% endfor %}\
         {% if add_generation_prompt %}assistant:{% endif %}",
        "<s>system: be <brief></s>\nuser: hello</s>\nassistant: hi</s>\nuser: bye </s>\nassistant:",
    );
}

#[test]
fn blocks_are_trimmed_as_transformers_trims_them() {
    check("a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc");
}

#[test]
fn python_methods_slices_and_loops() {
    check("{{ messages[-1].content.strip().upper() }}", "BYE");
    check("{{ messages[1:][0].content }}", "hello");
    check("{% for m in messages[::-1] %}{{ m.role[0] }}{% endfor %}", "uaus");
    check(
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content.startswith('h') }}{% break %}{% endif %}{% endfor %}",
        "True",
    );
    check("{{ 'a</think>b'.split('</think>')[-1].lstrip('\\n') }}", "b");
    check(
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}{{ ns.n }}",
        "2",
    );
    check(
        "{% for m in messages %}{% if loop.previtem is defined and loop.previtem.role == 'system' %}{{ m.content }}{% endif %}{% endfor %}",
        "hello",
    );
    check(
        "{{ tools is defined }} {{ messages is iterable }} {{ messages[0].content is string }}",
        "False True True",
    );
    check(
        "{% for key, value in messages[0].items() %}{{ key }} {% endfor %}",
        "role content ",
    );
    check("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m('a') }}", "<a>");
}

#[test]
fn tojson_is_pythons() {
    check(
        "{{ messages[0] | tojson }}",
        r#"{"role": "system", "content": "be <brief>"}"#,
    );
    check(
        "{{ {'é': [1, 2.5, true, none]} | tojson }}",
        r#"{"é": [1, 2.5, true, null]}"#,
    );
    check(
        "{{ {'a': [1]} | tojson(indent=2) }}",
        "{\n  \"a\": [\n    1\n  ]\n}",
    );
    check("{{ [] | tojson(ensure_ascii=False) }}", "[]");
}

#[test]
fn dates_come_from_the_clock() {
    check("{{ strftime_now('%d %b %Y') }}", "30 Jul 2024");
}

#[test]
fn generation_marks_render_as_nothing() {
    check(
        "{% for m in messages %}{% generation %}{{ m.role[0] }}{%- endgeneration %}{% endfor %}",
        "suau",
    );
}

#[test]
fn a_refusal_is_the_templates_own_words() {
    check_error(
        "{{ raise_exception('roles must alternate') }}",
        &["refuses these messages", "roles must alternate"],
    );
}

#[test]
fn a_failure_names_the_file_and_the_line() {
    check_error(
        "{{ bos_token }}\n{{ 1 + {} }}",
        &["chat_template.jinja", "failed", "chat:2"],
    );
    check_error("{{ nothing.of_this }}", &["chat_template.jinja"]);
    check_error("{% for m in messages %}", &["chat_template.jinja", "not valid"]);
    check_error("{{ strftime_now('%Q') }}", &["%Q"]);
}

#[test]
fn an_endless_template_ends_in_an_error() {
    check_error(
        "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
        &["failed"],
    );
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[track_caller]
fn check_folder(files: &[(&str, &str)], expected: Option<&str>) {
    let folder = folder(files);
    let rendered = ChatTemplate::open(folder.path())
        .unwrap()
        .map(|t| t.render(&[Message::user("hi")]).unwrap());
    assert_eq!(rendered.as_deref(), expected);
}

#[test]
fn where_a_folder_keeps_its_template() {
    check_folder(&[], None);
    check_folder(&[("tokenizer_config.json", r#"{"eos_token": "e"}"#)], None);
    check_folder(
        &[(
            "tokenizer_config.json",
            r#"{"eos_token": "e", "chat_template": "a{{ eos_token }}"}"#,
        )],
        Some("ae"),
    );
    check_folder(
        &[(
            "tokenizer_config.json",
            r#"{"bos_token": {"content": "b"}, "chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "{{ bos_token }}d"}]}"#,
        )],
        Some("bd"),
    );
    check_folder(
        &[
            ("chat_template.jinja", "j"),
            ("tokenizer_config.json", r#"{"chat_template": "c"}"#),
        ],
        Some("j"),
    );
}

#[test]
fn a_broken_config_is_an_error_that_names_it() {
    let folder = folder(&[("tokenizer_config.json", "{")]);
    let error = ChatTemplate::open(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("tokenizer_config.json") && error.contains("not JSON"),
        "{error}"
    );
}
