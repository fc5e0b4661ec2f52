use super::*;

const ALL: Syntax = Syntax { optional: true, two_variables: true, bind: true, sort_by: true, math: true };

/// Prints a tree fully parenthesized, to show precedence and expansion.
fn show(ast: &Ast, id: ExprId) -> String {
    let all = |ids: &[ExprId]| ids.iter().map(|id| show(ast, *id)).collect::<Vec<_>>().join(", ");
    match ast.expr(id) {
        Expr::Literal(Literal::String(text)) => format!("{text:?}"),
        Expr::Literal(Literal::Int(int)) => int.to_string(),
        Expr::Literal(Literal::Uint(uint)) => format!("{uint}u"),
        Expr::Literal(Literal::Double(double)) => format!("{double:?}"),
        Expr::Literal(Literal::Bool(bool)) => bool.to_string(),
        Expr::Literal(Literal::Null) => "null".into(),
        Expr::Literal(Literal::Bytes(bytes)) => format!("b{bytes:?}"),
        Expr::Ident(name) => name.to_string(),
        Expr::Select { operand, field, test: false } => format!("{}.{field}", show(ast, *operand)),
        Expr::Select { operand, field, test: true } => format!("{}.{field}~test", show(ast, *operand)),
        Expr::Call { function, target: None, args } => format!("{function}({})", all(args)),
        Expr::Call { function, target: Some(target), args } => {
            format!("{}.{function}({})", show(ast, *target), all(args))
        }
        Expr::List { items, optional } => {
            let items = items.iter().zip(optional).map(|(item, optional)| mark(*optional) + &show(ast, *item));
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        Expr::Map(entries) => {
            let entries = entries
                .iter()
                .map(|entry| format!("{}{}: {}", mark(entry.optional), show(ast, entry.key), show(ast, entry.value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        Expr::Struct { name, fields } => {
            let fields = fields
                .iter()
                .map(|field| format!("{}{}: {}", mark(field.optional), field.name, show(ast, field.value)));
            format!("{name}{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Expr::Fold(fold) => format!(
            "fold({}{}; {}; {} = {}; {}; {}; {})",
            fold.var,
            fold.var2.as_ref().map(|name| format!(", {name}")).unwrap_or_default(),
            show(ast, fold.range),
            fold.accu,
            show(ast, fold.init),
            show(ast, fold.cond),
            show(ast, fold.step),
            show(ast, fold.result)
        ),
    }
}

fn mark(optional: bool) -> String {
    if optional { "?".into() } else { String::new() }
}

fn check(source: &str, expect: &str) {
    let actual = match parse(source, ALL) {
        Ok(ast) => show(&ast, ast.root()),
        Err(findings) => findings.iter().map(|finding| format!("{}@{}", finding.message, finding.offset)).collect(),
    };
    assert_eq!(actual, expect, "{source}");
}

#[test]
fn operators_follow_precedence_and_are_left_associative() {
    check("1 + 2 * 3 - 4", "_-_(_+_(1, _*_(2, 3)), 4)");
    check("a == b && c || d", "_||_(_&&_(_==_(a, b), c), d)");
    check("a ? b : c ? d : e", "_?_:_(a, b, _?_:_(c, d, e))");
    check("a < b == c", "_==_(_<_(a, b), c)");
    check("x in [1, 2]", "@in(x, [1, 2])");
    check("!a.b", "!_(a.b)");
    check("!!a", "a");
    check("---a", "-_(a)");
    check("-a.b(-1)", "-_(a.b(-1))");
    check("-9223372036854775808", "-9223372036854775808");
    check("1 - -1", "_-_(1, -1)");
}

#[test]
fn long_logical_chains_are_balanced() {
    check("a && b && c && d", "_&&_(_&&_(a, b), _&&_(c, d))");
    let long = vec!["a"; 2000].join(" || ");
    assert!(parse(&long, ALL).is_ok());
}

#[test]
fn members_calls_and_indexes_chain() {
    check("a.b.c(1)[2].d", "_[_](a.b.c(1), 2).d");
    check(".a.b", ".a.b");
    check("a.?b[?0]", "_[?_](_?._(a, \"b\"), 0)");
    check("Object.spec{a: 1, ?b: c}", "Object.spec{a: 1, ?b: c}");
    check("{'a': 1, ?'b': c,}", "{\"a\": 1, ?\"b\": c}");
    check("[?a, b,]", "[?a, b]");
    check("{}", "{}");
}

#[test]
fn macros_expand_to_comprehensions() {
    check("has(a.b)", "a.b~test");
    check("l.all(x, x)", "fold(x; l; @result = true; @not_strictly_false(@result); _&&_(@result, x); @result)");
    check("l.exists(x, x)", "fold(x; l; @result = false; @not_strictly_false(!_(@result)); _||_(@result, x); @result)");
    check("l.exists_one(x, x)", "fold(x; l; @result = 0; true; _?_:_(x, _+_(@result, 1), @result); _==_(@result, 1))");
    check("l.map(x, x + 1)", "fold(x; l; @result = []; true; _+_(@result, [_+_(x, 1)]); @result)");
    check("l.filter(x, x)", "fold(x; l; @result = []; true; _?_:_(x, _+_(@result, [x]), @result); @result)");
    check("m.transformMap(k, v, v)", "fold(k, v; m; @result = {}; true; cel.@mapInsert(@result, k, v); @result)");
    check("cel.bind(x, 1, x)", "fold(#unused; []; x = 1; false; x; x)");
    check(
        "a.optMap(x, x)",
        "_?_:_(a.hasValue(), optional.of(fold(#unused; []; x = a.value(); false; x; x)), optional.none())",
    );
}

#[test]
fn syntax_errors_have_a_position() {
    check("", &format!("Syntax error: mismatched input '<EOF>' expecting {OPERAND}@0"));
    check("1 +", &format!("Syntax error: mismatched input '<EOF>' expecting {OPERAND}@3"));
    check("(1", "Syntax error: missing ')' at '<EOF>'@2");
    check("1 2", "Syntax error: extraneous input '2' expecting <EOF>@2");
    check("1 2!", "Syntax error: mismatched input '2' expecting <EOF>@2");
    check(
        "a = b",
        "Syntax error: token recognition error at: '= '@2Syntax error: extraneous input 'b' expecting <EOF>@4",
    );
    check("a == @b", "Syntax error: token recognition error at: '@'@5");
    check(
        "a ===",
        &format!(
            "Syntax error: token recognition error at: '='@4Syntax error: mismatched input '<EOF>' expecting {OPERAND}@5"
        ),
    );
    check("has(a)", "invalid argument to has() macro@4");
    check("l.all(1, x)", "argument must be a simple name@6");
    check("l.all(x, x, x)", "duplicate variable name: x@9");
    check("if", "reserved identifier: if@0");
    check("9223372036854775808", "invalid int literal@0");
    check("18446744073709551616u", "invalid uint literal@0");
    check("1e999", "invalid double literal@0");
    check(r"'\q'", r"unable to unescape string: invalid escape sequence '\q'@0");
    check("a.if", "a.if");
    check("f(1,)", &format!("Syntax error: mismatched input ')' expecting {OPERAND}@4"));
}

#[test]
fn optional_syntax_may_be_absent() {
    let syntax_error = |source: &str| parse(source, Syntax::default()).expect_err(source).to_string();
    assert!(syntax_error("a.?b").contains("unsupported syntax '.?'"));
    assert!(syntax_error("a[?0]").contains("unsupported syntax '[?'"));
    assert!(syntax_error("[?a]").contains("unsupported syntax '?'"));
}

#[test]
fn deep_and_long_sources_are_rejected() {
    for source in [
        "(".repeat(5000),
        "[".repeat(5000),
        "-(".repeat(5000),
        format!("a{}", ".b".repeat(5000)),
        format!("a{}", "+a".repeat(5000)),
        format!("a{}", "[0]".repeat(5000)),
        "a ? a : ".repeat(5000),
        "l.all(x,".repeat(1000),
    ] {
        let findings = parse(&source, ALL).expect_err("too deep");
        assert!(findings.to_string().contains("limit exceeded"), "{}", findings.iter().next().unwrap().message);
    }
    let long = format!("'{}'", "x".repeat(LENGTH_MAX));
    assert!(parse(&long, ALL).expect_err("too long").to_string().contains("size: 100002, limit 100000"));
}
