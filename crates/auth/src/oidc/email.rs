//! Detection of claims in a CEL expression, to enforce the use of `email_verified`.

use cel::ast::{Ast, Expr, ExprId, Literal};
use cel::parser::{Syntax, parse};

/// Whether the expression reads `claims.<field>` at any depth; `false` if it does not parse.
pub(super) fn reads_claim(source: &str, field: &str) -> bool {
    let syntax = Syntax { optional: true, two_variables: true, bind: false, sort_by: true, math: false };
    let Ok(ast) = parse(source, syntax) else { return false };
    reads(&ast, ast.root(), field)
}

/// Whether the subtree reads the claim. The parser limits the depth of trees.
fn reads(ast: &Ast, id: ExprId, field: &str) -> bool {
    let is_claims = |id: ExprId| matches!(ast.expr(id), Expr::Ident(name) if name == "claims");
    let here = match ast.expr(id) {
        Expr::Select { operand, field: selected, .. } => is_claims(*operand) && selected == field,
        Expr::Call { function, target: None, args } if function == "_?._" => match args.as_ref() {
            [operand, selected] => {
                is_claims(*operand)
                    && matches!(ast.expr(*selected), Expr::Literal(Literal::String(name)) if name == field)
            }
            _ => false,
        },
        _ => false,
    };
    let mut below = false;
    if !here {
        ast.expr(id).children(|child| below = below || reads(ast, child, field));
    }
    here || below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_is_found_at_any_depth() {
        let check = |source: &str, expect: bool| assert_eq!(reads_claim(source, "email"), expect, "{source}");
        check("claims.email", true);
        check("'a' + claims.email", true);
        check("claims.?email.orValue('')", true);
        check("[1].all(x, claims.email == 'a')", true);
        check("{'a': [claims.email]}", true);
        check("has(claims.email) ? 'a' : 'b'", true);
        check("claims.email_verified", false);
        check("claims.other.email", false);
        check("user.email", false);
        check("claims.(", false);
    }
}
